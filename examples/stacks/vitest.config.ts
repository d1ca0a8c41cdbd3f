import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** Applications that use the packed package; `npm run test:stacks` in the root. */
export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  test: {
    include: ["tests/**/*.test.ts"],
    globalSetup: ["tests/support/global-setup.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 300_000,
    hookTimeout: 300_000,
    teardownTimeout: 20_000,
  },
});
