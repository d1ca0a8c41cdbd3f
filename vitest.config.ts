import { defineConfig } from "vitest/config";

const seconds = (n: number): number => n * 1000;

/** Each folder of test/ is a project: `npx vitest run --project unit`. The times are for a machine with much else to do. */
const project = (name: string, timeoutMs: number) => ({
  extends: true as const,
  test: {
    name,
    include: [`test/${name}/**/*.test.ts`],
    testTimeout: timeoutMs,
    hookTimeout: Math.max(timeoutMs, seconds(120)),
  },
});

export default defineConfig({
  test: {
    globalSetup: ["test/harness/global-setup.ts"],
    environment: "node",
    pool: "forks",
    // Suites share one server and two cores in CI. Most of them wait most of the time, for leases, deadlines and elections: a
    // third worker fills the gaps, more would make timings noisier.
    maxWorkers: 3,
    teardownTimeout: seconds(20),
    projects: [
      project("unit", seconds(30)),
      project("conformance", seconds(180)),
      project("scenarios", seconds(240)),
      project("page", seconds(240)),
      project("migrations", seconds(60)),
      project("types", seconds(60)),
      project("package", seconds(180)),
    ],
  },
});
