import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import type { OnDead } from "../../../src/relay/relay-options.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

describe.skipIf(!hasPostgres())("two dead letters of a key, the second of which blocks it", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;

  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = new RecordingPublisher();
    publisher.rule = ({ n }) => (n < 3 ? { status: "rejected", error: new Error("never") } : undefined);
    await database.enqueue(series("k", 1));
    await relay("continue").drainOnce();
    await database.enqueue(series("k", 2, 2));
    await relay("block").drainOnce();
    publisher.rule = () => undefined;
  });
  afterEach(() => database[Symbol.asyncDispose]());

  const relay = (onDead: OnDead): Relay =>
    createRelay({ store: database.store, name: "orders", publisher, onDead, maintenance: false });
  const deadPositions = async (): Promise<bigint[]> =>
    (await database.store.admin.dead({ relay: "orders" })).map(({ position }) => position);

  it.each([
    ["requeued", [1, 2, 3]],
    ["discarded", [1, 3]],
  ])("requeueing the first does not free the key; it is free once the second is %s", async (how, numbers) => {
    const [first, second] = await deadPositions();
    expect(await database.store.admin.requeue({ position: first ?? 0n })).toBe(1);
    await relay("block").drainOnce();
    expect(await deadPositions()).toEqual([second]);
    expect(publisher.firsts("k")).not.toContain(3);

    const { admin } = database.store;
    expect(await (how === "requeued" ? admin.requeue({ all: true }) : admin.discard({ all: true }))).toBe(1);
    await relay("block").drainOnce();
    expect(publisher.firsts("k")).toEqual(numbers);
    expect(await database.value("select count(*)::int from txbox.blocked")).toBe(0);
  });
});
