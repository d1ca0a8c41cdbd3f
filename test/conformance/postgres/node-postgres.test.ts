import { describe } from "vitest";
import { hasPostgres, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { nodePostgres } from "../targets.ts";
import { postgresSuite } from "./postgres-suite.ts";

describe.skipIf(!hasPostgres())("node-postgres", () => {
  postgresSuite(nodePostgres, "node-postgres", sharedPostgresUrl);
});
