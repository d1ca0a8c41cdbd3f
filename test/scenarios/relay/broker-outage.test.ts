import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { UnavailableError } from "../../../src/core/errors.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import type { RelayEvent } from "../../../src/core/events.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";
import { isLong } from "../../support/is-long.ts";

const OUTAGE_MS = isLong ? 60_000 : 3000;
const KEYS = ["a", "b", "c", "d", "e"];

describe.skipIf(!hasPostgres())(`a broker that is out for ${OUTAGE_MS / 1000} s`, () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relay: Relay;
  let events: RelayEvent[];

  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = new RecordingPublisher();
    events = [];
    relay = createRelay({
      store: database.store,
      name: "orders",
      publisher,
      batchSize: 50,
      leaseMs: 1000,
      maxAttempts: 2,
      maintenance: false,
      onEvent: (event) => void events.push(event),
    });
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  async function outage(begin: () => void, end: () => void): Promise<void> {
    for (const key of KEYS) await database.enqueue(series(key, 100));
    begin();
    await relay.start();
    const endsAt = performance.now() + OUTAGE_MS;
    await until(() => events.some(({ type }) => type === "outage"), { what: "the outage to be noticed" });
    for (const key of KEYS) await database.enqueue(series(key, 100, 101));
    await until(() => performance.now() > endsAt, { what: "the outage", timeoutMs: OUTAGE_MS + 1000 });
    expect(await database.value("select count(*)::int from txbox.parked")).toBe(0);
    expect(await database.value("select count(*)::int from txbox.blocked")).toBe(0);
    expect(await database.value("select count(*)::int from txbox.dead")).toBe(0);
    const sentBefore = publisher.sent.length;
    end();
    // The longest pause between two looks at a broker that is out, and a little.
    await until(() => publisher.sent.length >= 1000, { what: "the drain", timeoutMs: 30_000 });
    for (const key of KEYS) expect(publisher.firsts(key)).toEqual(upTo(200));
    expect(publisher.sent).toHaveLength(1000);
    expect(sentBefore).toBeLessThan(1000);
    expect(events.filter(({ type }) => type === "retry" || type === "dead")).toEqual([]);
    expect(events.some(({ type }) => type === "recovered")).toBe(true);
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
    const infos = await database.store.admin.find({ stream: "orders", limit: 2000 });
    expect(infos.map(({ attempts, status }) => `${attempts} ${status}`)).toEqual(upTo(1000).map(() => "1 published"));
  }

  it("thrown: no attempt is counted, nothing is parked, and all goes out in order afterwards", async () => {
    await outage(
      () => {
        publisher.before = () => {
          throw new UnavailableError("connection refused");
        };
      },
      () => {
        publisher.before = () => undefined;
      },
    );
  });

  it("reported per message, in the middle of batches: the same", async () => {
    let out = false;
    let left = 0;
    publisher.rule = () => (out && --left < 0 ? { status: "unavailable", error: new Error("no leader") } : undefined);
    await outage(
      () => {
        out = true;
        left = 30;
      },
      () => {
        out = false;
      },
    );
  });

  it("a plain error thrown by publish(): the same", async () => {
    await outage(
      () => {
        publisher.before = () => {
          throw new TypeError("fetch failed");
        };
      },
      () => {
        publisher.before = () => undefined;
      },
    );
  });
});
