import { expect, describe, onTestFinished, test, vi } from "vitest";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import type { Channels } from "../../../src/core/events.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { listen } from "../../../src/observability/listen.ts";
import { logEvents } from "../../../src/observability/log-events.ts";
import { watchStore } from "../../../src/observability/watch-store.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startTracing } from "../../support/tracing.ts";
import { outboxDatabase, series, type Numbered } from "../support/outbox-database.ts";
import { upTo } from "../support/recording-publisher.ts";

const CHANNELS: readonly (keyof Channels)[] = [
  "txbox:outbox:enqueue:start",
  "txbox:outbox:enqueue:end",
  "txbox:relay:publish:start",
  "txbox:relay:publish:end",
  "txbox:inbox:handle:start",
  "txbox:inbox:handle:end",
  "txbox:relay:started",
  "txbox:relay:batch",
  "txbox:relay:retry",
  "txbox:relay:stopped",
];

/** All that may look on, each of which does this whenever it is called. */
function observeBy(misbehave: () => unknown) {
  const calls = { listener: 0, logger: 0, exporter: 0, onEvent: 0, onAlert: 0 };
  const observer = (who: keyof typeof calls) => () => {
    calls[who]++;
    return misbehave();
  };
  const ends = CHANNELS.map((channel) => listen(channel, observer("listener")));
  const log = observer("logger");
  ends.push(
    logEvents({ logger: { error: log, warn: log, info: log, debug: log, trace: log, isLevelEnabled: () => true } }),
  );
  const exported = observer("exporter");
  const tracing = startTracing({
    exporter: {
      // A promise is nothing that the SDK would look at.
      export: () => void Promise.resolve(exported()).catch(() => undefined),
      shutdown: () => Promise.resolve(),
    },
  });
  onTestFinished(() => {
    for (const end of ends) end();
    tracing[Symbol.dispose]();
  });
  return { calls, onEvent: observer("onEvent"), onAlert: observer("onAlert") };
}

describe.skipIf(!hasPostgres())("listeners, loggers, exporters and alerts of no use", () => {
  test.each<[string, () => unknown]>([
    ["hang", () => new Promise(() => undefined)],
    [
      "throw",
      () => {
        throw new Error("broken");
      },
    ],
    ["reject", () => Promise.reject(new Error("broken"))],
  ])("that %s lose nothing, and relay and inbox go on", async (_, misbehave) => {
    const warned = vi.spyOn(process, "emitWarning").mockReturnValue();
    onTestFinished(() => warned.mockRestore());
    await using database = await outboxDatabase();
    const { store } = database;
    const { calls, onEvent, onAlert } = observeBy(misbehave);
    await using _watch = watchStore({ store, everyMs: 50, maxAgeMs: 1, onAlert });
    const handled: number[] = [];
    let failures = 0;
    const bus = createInProcessBus();
    const inbox = createInbox({ store, consumer: "payments" });
    inbox.on("changed", async (_tx, message) => {
      const { n } = message.payload as Numbered;
      if (n === 5 && failures++ === 0) throw new Error("not yet");
      handled.push(n);
    });
    await inbox.start(bus);
    await database.enqueue(series("k", 20));
    await until(() => calls.onAlert > 0, { what: "an alert", timeoutMs: 10_000 });
    const relay = createRelay({ store, name: "r", publisher: bus, onEvent, backoff: { baseMs: 10, maxMs: 20 } });
    await relay.start();
    await until(() => handled.length === 20, { what: "the messages", timeoutMs: 20_000 });
    await database.enqueue(series("k", 5, 21));
    await until(() => handled.length === 25, { what: "more of them", timeoutMs: 20_000 });
    await relay.stop();
    await inbox.stop();
    expect(handled).toEqual(upTo(25));
    expect(await store.admin.relays()).toMatchObject([{ name: "r", pending: 0, dead: 0 }]);
    for (const [who, count] of Object.entries(calls)) expect(count, who).toBeGreaterThan(0);
  });
});
