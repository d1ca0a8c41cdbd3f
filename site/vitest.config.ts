import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** The built site in a browser; `npm run test:site` in the root. */
export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  test: {
    include: ["tests/**/*.test.ts"],
    globalSetup: ["tests/support/build-site.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 300_000,
    hookTimeout: 120_000,
    teardownTimeout: 20_000,
  },
});
