import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe } from "vitest";
import { storeConformance, type StoreFeature } from "../../../src/testing/index.ts";
import { databaseOf } from "../../../src/stores/postgres/postgres-client.ts";
import { createDatabase, type TestDatabase } from "../../harness/index.ts";
import { openDriver, type Driver, type DriverName } from "../../support/postgres-drivers.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import type { Target } from "../targets.ts";
import { postgresContext, type Clients } from "./postgres-context.ts";
import { SchemaPool } from "./schema-pool.ts";

/** Enough for the cases that run at once, each with a few transactions open. */
const CONNECTIONS = 40;

/** The store suite through one driver, in a database of its own on the server of `url`. */
export function postgresSuite(
  target: Target<StoreFeature>,
  driverName: DriverName,
  url: () => string,
  settings: Readonly<Record<string, string>> = {},
  { stream = false, library }: Pick<Clients, "stream" | "library"> = {},
): void {
  const open = (on: string, connections = CONNECTIONS): Driver => openDriver(driverName, on, connections);
  describe("store conformance", () => {
    let base: TestDatabase;
    let clients: Clients;

    beforeAll(async () => {
      base = await createDatabase(url());
      await setDatabase(base, settings);
      const [driver, other] = [open(base.url), open(base.url)];
      clients = { driver, other, schemas: new SchemaPool(driver), sole: () => open(base.url, 1), stream, library };
    });
    afterAll(async () => {
      if (stream) await endStreams(clients.driver);
      await Promise.all([clients.driver.close(), clients.other.close()]);
      await base.drop();
    }, 60_000);

    conformanceSuite(target, storeConformance, () => postgresContext(clients));
  });
}

/** Of sessions that cases have left behind: a database with slots cannot be dropped. */
async function endStreams(driver: Driver): Promise<void> {
  const database = databaseOf(driver.client);
  const mine = "from pg_replication_slots where database = current_database()";
  for (let tries = 0; tries < 100; tries++) {
    await database.query(`select pg_terminate_backend(active_pid) ${mine} and active_pid is not null`);
    const dropped = database.query(`select pg_drop_replication_slot(slot_name) ${mine} and active_pid is null`);
    // A process may have begun to read meanwhile.
    await dropped.catch(() => undefined);
    if ((await database.query(`select 1 ${mine}`)).length === 0) return;
    await sleep(50);
  }
}

/** As an administrator may have set them: every later session has them. */
export async function setDatabase(
  { url, name }: TestDatabase,
  settings: Readonly<Record<string, string>>,
): Promise<void> {
  const driver = openDriver("node-postgres", url, 1);
  const database = databaseOf(driver.client);
  for (const [setting, value] of Object.entries(settings)) {
    await database.exec(`alter database "${name}" set ${setting} = '${value}'`);
  }
  await driver.close();
}
