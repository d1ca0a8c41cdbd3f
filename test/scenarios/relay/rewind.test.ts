import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

const HOUR_MS = 3_600_000;

describe.skipIf(!hasPostgres())("a rewind, where part of the past cannot be read again", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let broken: boolean;

  beforeEach(async () => {
    // Every maintenance run rotates, and drops what is settled.
    database = await outboxDatabase({ segmentMs: 1, retentionMs: 0 });
    publisher = new RecordingPublisher();
    broken = true;
    publisher.rule = ({ key, n }) => {
      if (!broken || n !== 1) return undefined;
      return { status: key?.startsWith("dead") === true ? "rejected" : "failed", error: new Error("not yet") };
    };
  });
  afterEach(() => database[Symbol.asyncDispose]());

  /** What failed stays failed until the test says otherwise, whatever the jitter. */
  async function drain(): Promise<void> {
    const relay = createRelay({
      store: database.store,
      name: "orders",
      publisher,
      backoff: { baseMs: HOUR_MS, maxMs: HOUR_MS },
      onDead: "block",
      maintenance: false,
    });
    await relay.drainOnce();
    await database.query("update txbox.blocked set next_at = now() + interval '1 hour' where next_at < 'infinity'");
  }

  const sentOf = (key: string): number[] => publisher.sent.filter((sent) => sent.key === key).map(({ n }) => n);
  const keysOf = async (table: "parked" | "blocked"): Promise<unknown[]> =>
    (await database.query(`select distinct key from txbox.${table} order by key`)).map(({ key }) => key);

  const dropped = () =>
    until(
      async () => {
        await database.store.maintenance.run();
        return (await database.value("select count(*)::int from txbox.segment where n = 0")) === 0;
      },
      { what: "the first segment to go" },
    );
  const rebased = async () => void (await database.store.rebase());

  it.each([
    ["its segment is gone", dropped],
    ["it lies below the floor of a rebased copy", rebased],
  ])("because %s, keeps that and repeats the rest once", async (_, cutOff) => {
    await database.enqueue([...series("parked", 2), ...series("dead", 2)]);
    await drain();
    await cutOff();
    await database.enqueue([
      ...series("parked", 1, 3),
      ...series("dead", 1, 3),
      ...series("parked-later", 2),
      ...series("dead-later", 2),
    ]);
    await drain();
    expect(publisher.sent).toEqual([]);

    await database.store.admin.rewind("orders", "earliest");
    expect(await keysOf("parked")).toEqual(["dead", "parked"]);
    expect(await keysOf("blocked")).toEqual(["dead", "parked"]);
    const dead = await database.query("select key, state from txbox.dead order by key");
    expect(dead).toEqual([
      { key: "dead", state: "dead" },
      { key: "dead-later", state: "requeued" },
    ]);

    broken = false;
    await database.enqueue([...series("parked", 1, 4), ...series("dead", 1, 4)]);
    await drain();
    expect([sentOf("parked-later"), sentOf("dead-later")]).toEqual([
      [1, 2],
      [1, 2],
    ]);
    expect([sentOf("parked"), sentOf("dead")]).toEqual([[], []]);

    await database.query("update txbox.blocked set next_at = now() where key = 'parked'");
    expect(await database.store.admin.requeue({ relay: "orders" })).toBe(1);
    await drain();
    expect([sentOf("parked"), sentOf("dead")]).toEqual([
      [1, 2, 3, 4],
      [1, 2, 3, 4],
    ]);
    expect(publisher.sent).toHaveLength(12);
    const [figures] = await database.store.admin.relays();
    expect(figures).toMatchObject({ pending: 0, parked: 0, blockedKeys: 0, dead: 0 });
  });
});
