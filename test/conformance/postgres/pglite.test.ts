import { afterAll, beforeAll, describe } from "vitest";
import { storeConformance } from "../../../src/testing/index.ts";
import { openDriver, type Driver } from "../../support/postgres-drivers.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import { pglite } from "../targets.ts";
import { postgresContext } from "./postgres-context.ts";
import { SchemaPool } from "./schema-pool.ts";

describe("PGlite", () => {
  let driver: Driver;
  let schemas: SchemaPool;

  beforeAll(async () => {
    driver = openDriver("PGlite", "");
    // The first statement waits for the server to be unpacked and started.
    await (driver.client as { waitReady?: Promise<void> }).waitReady;
    schemas = new SchemaPool(driver);
  }, 60_000);
  afterAll(() => driver.close());

  // There is one connection, so another process can only be another store on it.
  conformanceSuite(pglite, storeConformance, () => postgresContext({ driver, other: driver, schemas }), {
    oneByOne: true,
  });
});
