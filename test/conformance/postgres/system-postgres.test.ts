import { afterAll, describe } from "vitest";
import { ServerUnavailableError, startPostgres, type PostgresServer } from "../../harness/index.ts";
import { systemPostgres } from "../targets.ts";
import { postgresSuite } from "./postgres-suite.ts";

/** An older server than the one that comes with the packages, where the system has one; CI need not. */
async function systemServer(): Promise<PostgresServer | undefined> {
  try {
    return await startPostgres({ binaries: "path", owned: true });
  } catch (error) {
    if (!(error instanceof ServerUnavailableError)) throw error;
    process.stderr.write(`\n*** SKIPPED: no PostgreSQL of the system. ${error.reason}\n\n`);
    return undefined;
  }
}

const server = await systemServer();
afterAll(() => server?.stop());

describe.skipIf(server === undefined)("the system's PostgreSQL", () => {
  postgresSuite(systemPostgres, "node-postgres", () => server?.url ?? "");
});
