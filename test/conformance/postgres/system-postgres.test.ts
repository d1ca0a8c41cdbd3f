import { afterAll, describe } from "vitest";
import { serverOrSkip, startPostgres } from "../../harness/index.ts";
import { systemPostgres } from "../targets.ts";
import { postgresSuite } from "./postgres-suite.ts";

// An older server than the one that comes with the packages.
const slot = await serverOrSkip("PostgreSQL of the system", () => startPostgres({ binaries: "path", owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped)("the system's PostgreSQL", () => {
  postgresSuite(systemPostgres, "node-postgres", () => slot.server.url);
});
