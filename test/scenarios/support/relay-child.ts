import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { UnavailableError } from "../../../src/core/errors.ts";
import { MongoClient } from "mongodb";
import type { Publisher, PublishResult, Store } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { openPool } from "./outbox-database.ts";
import { numberedOf } from "./recording-publisher.ts";
import type { ChildConfig } from "./relay-process.ts";
import { bySource } from "../../support/by-source.ts";

/** A relay in a process of its own, told by one JSON argument what to do with messages; see `ChildConfig`. */
const config = JSON.parse(process.argv[2] ?? "{}") as ChildConfig;
const lines: string[] = [];
let onLine: (() => void) | undefined;
createInterface({ input: process.stdin }).on("line", (line) => {
  lines.push(line);
  onLine?.();
});

async function nextLine(): Promise<void> {
  while (lines.shift() === undefined) await new Promise<void>((resolve) => (onLine = resolve));
}

function say(word: string, value: unknown): void {
  const text = JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? String(part) : part));
  process.stdout.write(`${word} ${text}\n`);
}

let blocked = false;

const publisher: Publisher = {
  keepsKeyOrder: true,
  async publish(messages, signal, progress) {
    switch (config.mode ?? "print") {
      case "ask":
        report("asked", messages);
        await nextLine();
        break;
      case "die-on-poison":
        for (const message of messages) {
          if (numberedOf(message).poison === true) process.abort();
          report("sent", [message]);
        }
        return messages.map(() => ({ status: "published" }));
      case "die-on-retry":
        if (progress?.kind === "retry" && messages.some((message) => numberedOf(message).poison === true))
          process.abort();
        return messages.map((message): PublishResult => {
          if (numberedOf(message).poison === true) return { status: "failed", error: new Error("not yet") };
          if (config.failing !== undefined && message.key?.startsWith(config.failing) === true)
            return { status: "failed", error: new Error("never") };
          report("sent", [message]);
          return { status: "published" };
        });
      case "out":
        say("out", messages.length);
        throw new UnavailableError("connection refused");
      case "hang":
        say("hanging", { signal: signal.aborted });
        await new Promise(() => undefined);
        break;
      case "block":
        if (!blocked) {
          blocked = true;
          say("blocking", messages.length);
          const endsAt = performance.now() + (config.blockMs ?? 0);
          const isOver = (): boolean => config.blockUntil !== undefined && existsSync(config.blockUntil);
          while (performance.now() < endsAt && !isOver());
          const mayBegin = progress?.mayBegin();
          // Its timer gets its turn.
          await new Promise((resolve) => setTimeout(resolve, 5));
          say("aborted", { mayBegin, signal: signal.aborted });
          // As a careless publisher would: it goes on and says that all went well.
        }
        break;
      case "print":
        if (config.delayMs !== undefined) await new Promise((resolve) => setTimeout(resolve, config.delayMs));
        break;
    }
    report("sent", messages);
    return messages.map((): PublishResult => ({ status: "published" }));
  },
};

function report(word: string, messages: readonly Message[]): void {
  for (const message of messages)
    say(word, { ...numberedOf(message), id: message.id, position: message.position, at: Date.now() });
}

function openStore({ url, source = "polling", failoverSlot = false }: ChildConfig): Store {
  if (!url.startsWith("mongodb://"))
    return createPostgresStore({ client: openPool(url, 5), replication: { failover: failoverSlot } });
  return bySource(createMongoStore({ client: new MongoClient(url) }), source, (event) => say("event", event));
}

const relay = createRelay({
  store: openStore(config),
  name: config.name ?? "orders",
  publisher,
  leaseMs: config.leaseMs ?? 2000,
  batchSize: config.batchSize ?? 100,
  maintenance: false,
  ...(config.backoffMs === undefined ? {} : { backoff: { baseMs: config.backoffMs / 2, maxMs: config.backoffMs } }),
  ...(config.url.startsWith("mongodb://") || config.source === undefined ? {} : { source: config.source }),
  onEvent: (event) => {
    if (event.type !== "batch") say("event", event);
  },
});
process.once("SIGTERM", () => {
  const startedAt = performance.now();
  void relay.stop(config.stopDeadlineMs === undefined ? {} : { deadlineMs: config.stopDeadlineMs }).then(() => {
    say("stopped", Math.round(performance.now() - startedAt));
    process.exit(0);
  });
});
await relay.start();
say("ready", process.pid);
