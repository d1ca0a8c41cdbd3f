import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { NewMessage } from "../../../src/core/message.ts";
import type { Enqueued } from "../../../src/core/contracts.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { until, withDeadline } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

const HOUR_MS = 3_600_000;

describe.skipIf(!hasPostgres())("scheduled messages", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relay: Relay;

  beforeEach(async () => {
    database = await outboxDatabase({ retentionMs: 60_000 });
    publisher = new RecordingPublisher();
    relay = createRelay({
      store: database.store,
      name: "orders",
      publisher,
      maintenance: false,
    });
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  async function enqueue(...ids: string[]): Promise<Enqueued[]> {
    await using writer = await database.connect();
    await writer.query("begin");
    const messages = ids.map((id): NewMessage => ({
      id,
      stream: "orders",
      type: "due",
      payload: {},
      deliverAt: new Date(Date.now() + HOUR_MS),
    }));
    const enqueued = await database.outbox.enqueue(writer.client, messages);
    await writer.query("commit");
    return enqueued;
  }

  /** As if the messages had been enqueued an hour ago. */
  async function anHourLater(): Promise<void> {
    await database.query("update txbox.scheduled set deliver_at = deliver_at - interval '1 hour'");
    await database.query("update txbox.enqueued_id set enqueued_at = enqueued_at - interval '1 hour'");
  }

  const sent = (): string[] => publisher.sent.map(({ id }) => id);

  it("a chosen id is remembered from its delivery on", async () => {
    expect(await enqueue("invoice-11")).toEqual([{ id: "invoice-11", duplicate: false }]);
    await anHourLater();
    await database.store.maintenance.run();
    await relay.drainOnce();
    expect(sent()).toEqual(["invoice-11"]);
    await database.store.maintenance.run();
    expect(await enqueue("invoice-11")).toEqual([{ id: "invoice-11", duplicate: true }]);
    await database.query("update txbox.enqueued_id set enqueued_at = enqueued_at - interval '1 hour'");
    await database.store.maintenance.run();
    expect(await enqueue("invoice-11")).toEqual([{ id: "invoice-11", duplicate: false }]);
  });

  it("a cancellation that is still open holds up no other", async () => {
    await enqueue("a", "b", "c");
    await anHourLater();
    await using canceller = await database.connect();
    await canceller.query("begin");
    expect(await database.outbox.cancel(canceller.client, "a")).toBe(true);
    await withDeadline(relay.start(), 4000, "the start");
    await until(() => publisher.sent.length === 2, { what: "the others" });
    expect(sent()).toEqual(["b", "c"]);
    await canceller.query("rollback");
    await until(() => publisher.sent.length === 3, { what: "what was not cancelled" });
    expect(sent()).toEqual(["b", "c", "a"]);
  });
});
