import type pg from "pg";
import { describe } from "vitest";
import { hasPostgres, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { fromSmallOrm, SmallOrm } from "../../support/small-orm.ts";
import { postgresBridge } from "../targets.ts";
import { postgresSuite } from "./postgres-suite.ts";

describe.skipIf(!hasPostgres())("an ORM through a bridge", () => {
  postgresSuite(postgresBridge, "node-postgres", sharedPostgresUrl, {}, ({ client }) => {
    const pool = client as pg.Pool;
    const orm = new SmallOrm(pool);
    return { bridge: fromSmallOrm(orm, pool), transaction: (run) => orm.transaction(run) };
  });
});
