import { afterAll, beforeAll, describe } from "vitest";
import { storeConformance } from "../../../src/testing/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { openDriver, type Driver } from "../../support/postgres-drivers.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import { nodePostgres } from "../targets.ts";
import { postgresContext } from "./postgres-context.ts";

describe.skipIf(!hasPostgres())("store conformance", () => {
  let base: TestDatabase;
  let driver: Driver;
  let other: Driver;

  beforeAll(async () => {
    base = await testDatabase();
    driver = openDriver("node-postgres", base.url, 40);
    other = openDriver("node-postgres", base.url, 20);
  });
  afterAll(async () => {
    await Promise.all([driver.close(), other.close()]);
    await base.drop();
  });

  conformanceSuite(nodePostgres, storeConformance, () => postgresContext(driver, other));
});
