import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { PgBoss } from "pg-boss";
import { describe, expect, test } from "vitest";
import { createInProcessBus } from "../../../src/brokers/in-process/in-process-bus.ts";
import { defineEvents } from "../../../src/core/event-map.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { programsOf, startProgram } from "../../support/docs/run-program.ts";
import { inTransaction } from "../../support/in-transaction.ts";

const [FORWARDER = ""] = programsOf("docs/moving-from-pg-boss.md");
const QUEUE = "order_created";
const PATIENCE_MS = 90_000;

type Events = { order_created: { orderId: string; total: number } };

/** Orders, written by senders of old, of new, or by both; one in five is rolled back. */
class Senders {
  readonly committed: string[] = [];
  share: (n: number) => "old" | "new" = () => "old";
  rolledBack = 0;
  readonly #stopping = new AbortController();
  readonly #running: Promise<void>;

  constructor(pool: pg.Pool, boss: PgBoss) {
    const outbox = createOutbox({ store: createPostgresStore({ client: pool }), events: defineEvents<Events>() });
    const refused = new Error("rolled back");
    const order = async (n: number): Promise<void> => {
      const payload = { orderId: `o-${n}`, total: n };
      await inTransaction(pool, async (tx) => {
        await tx.query("insert into orders values ($1)", [payload.orderId]);
        if (this.share(n) === "new") {
          await outbox.enqueue(tx, { stream: "orders", type: QUEUE, key: payload.orderId, payload });
        } else {
          await boss.send(QUEUE, payload, {
            db: { executeSql: (text, values) => tx.query(text, values as unknown[]) },
          });
        }
        if (n % 5 === 0) throw refused;
      }).then(
        () => this.committed.push(payload.orderId),
        (error: unknown) => {
          if (error !== refused) throw error;
          return (this.rolledBack += 1);
        },
      );
    };
    this.#running = (async () => {
      for (let n = 1; !this.#stopping.signal.aborted; n += 3) {
        await Promise.all([order(n), order(n + 1), order(n + 2)]);
        await sleep(3);
      }
    })();
    this.#running.catch(() => undefined);
  }

  async more(orders: number): Promise<void> {
    const enough = this.committed.length + orders;
    await until(() => this.committed.length >= enough, { what: "more orders", timeoutMs: PATIENCE_MS });
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }
}

describe.skipIf(!hasPostgres())("moving over from pg-boss", () => {
  test("every order is paid once while senders change and the forwarder is killed", async () => {
    await using database = await testDatabase();
    const pool = new pg.Pool({ connectionString: database.url, max: 20 });
    const store = createPostgresStore({ client: pool });
    const bus = createInProcessBus();
    const relay = createRelay({ store, name: "payments", publisher: bus });
    const inbox = createInbox<Events>({ store, consumer: "payments" });
    const boss = new PgBoss({ connectionString: database.url, max: 4, schedule: false });
    boss.on("error", () => undefined);
    const counts = async (): Promise<Record<string, number>> => {
      const { rows } = await pool.query<{ state: string; n: number }>(
        "select state::text, count(*)::int as n from pgboss.job where name = $1 group by 1",
        [QUEUE],
      );
      return Object.fromEntries(rows.map(({ state, n }) => [state, n]));
    };
    try {
      await pool.query("create table orders (id text primary key)");
      await pool.query("create table payments (order_id text, amount int)");
      await boss.start();
      await boss.createQueue(QUEUE, { expireInSeconds: 2, retryLimit: 5, retryDelay: 0 });
      const senders = new Senders(pool, boss);
      await senders.more(100);

      await store.migrator.migrate();
      inbox.on(QUEUE, async (tx, { payload: { orderId, total } }) => {
        await tx.query("insert into payments values ($1, $2)", [orderId, total]);
      });
      await inbox.start(bus);
      await relay.start();

      const killed = startProgram(FORWARDER, { DATABASE_URL: database.url });
      await killed.waitForLine("forwarding");
      await until(async () => ((await counts())["completed"] ?? 0) > 50, {
        what: "jobs forwarded",
        timeoutMs: PATIENCE_MS,
      });
      // Committed, and the end of the jobs was never noted: what a crash between the two leaves behind.
      await killed.kill();
      const { rowCount: unnoted } = await pool.query(
        `update pgboss.job set state = 'active', started_on = now() - interval '1 hour', completed_on = null
         where id in (select id from pgboss.job where name = $1 and state = 'completed' limit 20)`,
        [QUEUE],
      );
      expect(unnoted).toBe(20);

      const forwarder = startProgram(FORWARDER, { DATABASE_URL: database.url });
      await forwarder.waitForLine("forwarding");
      senders.share = (n) => (n % 2 === 0 ? "old" : "new");
      await senders.more(150);
      senders.share = () => "new";
      await senders.more(50);
      await senders.stop();

      await until(
        async () => {
          await boss.supervise(QUEUE); // what is active for too long is given out again; by itself once a minute
          const { created = 0, retry = 0, active = 0, failed = 0 } = await counts();
          expect(failed).toBe(0);
          return created + retry + active === 0;
        },
        { what: "no job is left", timeoutMs: PATIENCE_MS },
      );
      const paid = async (): Promise<string[]> =>
        (await pool.query<{ order_id: string }>("select order_id from payments")).rows.map(({ order_id: id }) => id);
      await until(async () => (await paid()).length >= senders.committed.length, {
        what: "every order is paid",
        timeoutMs: PATIENCE_MS,
      });
      forwarder.signal("SIGTERM");
      expect(await forwarder.waitForExit()).toMatchObject({ code: 0 });

      expect(senders.rolledBack).toBeGreaterThan(50);
      expect((await paid()).sort()).toEqual(senders.committed.sort());
      const { rows } = await pool.query("select count(*)::int as repeats from pgboss.job where retry_count > 0");
      expect(rows[0].repeats).toBeGreaterThanOrEqual(20);
    } finally {
      await relay.stop();
      await inbox.stop();
      await boss.stop({ graceful: false });
      await pool.end();
    }
  });
});
