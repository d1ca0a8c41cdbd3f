import type pg from "pg";
import { describe } from "vitest";
import { hasPostgres, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { fromSmallOrm, SmallOrm } from "../../support/small-orm.ts";
import type { Driver } from "../../support/postgres-drivers.ts";
import { postgresBridge } from "../targets.ts";
import type { Library } from "./postgres-context.ts";
import { postgresSuite } from "./postgres-suite.ts";

describe.skipIf(!hasPostgres())("an ORM through a bridge", () => {
  const library = ({ client }: Driver): Library => {
    const pool = client as pg.Pool;
    const orm = new SmallOrm(pool);
    return { bridge: fromSmallOrm(orm, pool), transaction: (run) => orm.transaction(run) };
  };
  postgresSuite(postgresBridge, "node-postgres", sharedPostgresUrl, {}, { library });
});
