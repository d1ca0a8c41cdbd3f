import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type InterceptingPool, interceptingPool } from "../support/intercepting-pool.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

const OPENING = /set\s+cur = pg_catalog\.pg_current_snapshot/;
const READING_A_PAGE = /copy \(.*pg_visible_in_snapshot\(xid/s;
const RENEWING = /renewed as \(update "txbox"\."cursor"/;

describe.skipIf(!hasPostgres())("a relay whose view of its cursor is wrong", () => {
  let database: OutboxDatabase;
  let pool: InterceptingPool;
  let publisher: RecordingPublisher;
  let relay: Relay;

  beforeEach(async () => {
    database = await outboxDatabase();
    pool = interceptingPool(database.pool);
    publisher = new RecordingPublisher();
  });
  afterEach(async () => {
    await relay.stop({ deadlineMs: 1000 });
    await database[Symbol.asyncDispose]();
  });

  async function start(leaseMs: number): Promise<void> {
    relay = createRelay({
      store: createPostgresStore({ client: pool.client }),
      name: "orders",
      publisher,
      leaseMs,
      maintenance: false,
    });
    await relay.start();
    await database.enqueue(series("k", 3));
    await arrive(3, 5000);
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
  }

  const arrive = (count: number, timeoutMs: number) =>
    until(() => publisher.firsts("k").length === count, { what: `${count} messages`, timeoutMs });

  it.each([["seq"], ["epoch"]])(
    "because its %s has moved, notices and goes on, long before the lease ends",
    async (column) => {
      await start(60_000);
      // The stamp says that the row was not restored from another server.
      await database.query(`update txbox.cursor set ${column} = ${column} + 1, stamp = pg_current_xact_id()`);
      await database.enqueue(series("k", 3, 4));
      await arrive(6, 5000);
      expect(publisher.firsts("k")).toEqual(upTo(6));
      expect(publisher.sent).toHaveLength(6);
    },
  );

  it("because a window was opened after its connection had broken, goes on", async () => {
    await start(60_000);
    let late: () => Promise<unknown> = () => Promise.reject(new Error("never sent"));
    await pool.intercept(OPENING, (send) => {
      late = send;
      return Promise.reject(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));
    });
    // By its next look it has read its cursor again; only now does the statement reach the server.
    await pool.intercept(OPENING, async (send) => {
      await database.enqueue(series("k", 3, 4));
      await late();
      return send();
    });
    await arrive(6, 5000);
    expect(publisher.firsts("k")).toEqual(upTo(6));
    expect(publisher.sent).toHaveLength(6);
  });

  it("because two of its questions are never answered, gives up on the answers and goes on", async () => {
    await start(1000);
    const silence = () => new Promise(() => undefined);
    const asked = [pool.intercept(READING_A_PAGE, silence), pool.intercept(RENEWING, silence)];
    await database.enqueue(series("k", 3, 4));
    await Promise.all(asked);
    await arrive(6, 10_000);
    expect(publisher.firsts("k")).toEqual(upTo(6));
    await database.store.admin.pause("orders");
    await until(() => relay.state().session?.paused === true, { what: "the pause" });
  });
});
