import { afterAll, describe } from "vitest";
import { serverOrSkip, startPgBouncer } from "../../harness/index.ts";
import { hasPostgres, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { pgBouncer } from "../targets.ts";
import { postgresSuite } from "./postgres-suite.ts";

if (hasPostgres()) {
  const slot = await serverOrSkip("PgBouncer", () =>
    startPgBouncer({ postgresUrl: sharedPostgresUrl(), poolSize: 60 }),
  );
  afterAll(() => slot.stop());

  describe.skipIf(slot.skipped)("PgBouncer", () => {
    postgresSuite(pgBouncer, "node-postgres", () => slot.server.url);
  });
}
