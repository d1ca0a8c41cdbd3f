import { describe } from "vitest";
import { hasPostgres, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { postgresJs } from "../targets.ts";
import { postgresSuite } from "./postgres-suite.ts";

describe.skipIf(!hasPostgres())("postgres.js", () => {
  postgresSuite(postgresJs, "postgres.js", sharedPostgresUrl);
});
