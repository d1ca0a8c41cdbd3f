import type { MongoClient } from "mongodb";
import { bySource } from "./by-source.ts";
import type { MessageSourceName } from "../../src/core/contracts.ts";
import type { Claim, Outcome, QueueSession } from "../../src/core/contracts.ts";
import type { NewMessage } from "../../src/core/message.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createMongoStore, type MongoStore, type SourceEvent } from "../../src/stores/mongodb/index.ts";
import { join, nextClaim, PUBLISHED, WAITING } from "../../src/testing/store/consumer.ts";
import { until } from "../harness/index.ts";
import { type InterceptingMongo, interceptingMongo } from "./intercepting-mongo.ts";
import { type MongoDatabase, mongoDatabase } from "./mongodb-database.ts";

export { join, PUBLISHED, WAITING };

/** Long enough for a test to act within it, short enough to be waited for. */
export const SHORT_LEASE_MS = 1000;

export interface Scene extends AsyncDisposable {
  readonly database: MongoDatabase;
  /** The store whose operations can be broken. */
  readonly broken: MongoStore;
  readonly hook: InterceptingMongo;
  /** Another process, whose operations are not. */
  readonly store: MongoStore;
  /** What happened to the change streams of both. */
  readonly events: SourceEvent[];
  /** In one transaction; "a1" is the message 1 of key a. */
  enqueue(...messages: readonly string[]): Promise<void>;
  enqueueAll(messages: readonly NewMessage[]): Promise<void>;
}

export async function mongoScene(url: string, by: { source?: MessageSourceName } = {}): Promise<Scene> {
  const database = await mongoDatabase(url);
  const hook = interceptingMongo(database.client);
  const events: SourceEvent[] = [];
  const open = (client: MongoClient): MongoStore =>
    bySource(createMongoStore({ client }), by.source ?? "polling", (event) => events.push(event));
  const store = open(database.client);
  await store.migrator.migrate();
  const outbox = createOutbox({ store });
  const enqueueAll = async (messages: readonly NewMessage[]): Promise<void> => {
    await database.client.withSession((session) => session.withTransaction(() => outbox.enqueue(session, messages)));
  };
  return {
    database,
    hook,
    store,
    events,
    broken: open(hook.client),
    enqueueAll,
    enqueue: (...messages) => enqueueAll(messages.map(numbered)),
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

/** "a1" is the message 1 of key a. */
export function numbered(text: string): NewMessage {
  return { stream: "s", type: "t", key: text.slice(0, 1), payload: Number(text.slice(1)) };
}

export const contents = (claim: Claim): string[] => claim.messages.map(({ key, body }) => `${key}${String(body)}`);

/** Takes and publishes until there is nothing left; what was published, in order. */
export async function drain(session: QueueSession, count: number): Promise<string[]> {
  const journal: string[] = [];
  await until(
    async () => {
      await session.tend();
      for (let claim = await nextClaim(session); claim !== undefined; claim = await nextClaim(session)) {
        const admitted = session.admit(claim);
        const goes = claim.messages.map((_, i) => admitted === "all" || admitted[i] === true);
        await session.settle(
          claim,
          goes.map((go) => (go ? PUBLISHED : WAITING)),
        );
        journal.push(...contents(claim).filter((_, i) => goes[i] === true));
      }
      return journal.length >= count;
    },
    { what: `delivery of ${count}`, timeoutMs: 60_000 },
  );
  return journal;
}

/** The first claim of a process that may be slow to get its lanes. */
export async function firstClaim(session: QueueSession): Promise<Claim> {
  return until<Claim>(
    async () => {
      await session.tend();
      return (await nextClaim(session)) ?? false;
    },
    { what: "a claim" },
  );
}

export const ofKey = (journal: readonly string[], key: string): number[] =>
  journal.filter((one) => one.startsWith(key)).map((one) => Number(one.slice(key.length)));

/** How its streams began, or that they were lost. */
export const startsOf = (events: readonly SourceEvent[]): string[] =>
  events.map((event) => (event.type === "stream_started" ? event.from : event.type));

/** A session that has seen all there is, and follows the stream. */
export async function streaming(on: Scene, store = on.store, leaseMs = 30_000): Promise<QueueSession> {
  const session = await join(store, { leaseMs });
  await until(
    async () => {
      await session.tend();
      if ((await nextClaim(session)) !== undefined) throw new Error("there was something to claim");
      return on.events.length > 0;
    },
    { what: "the stream" },
  );
  return session;
}

export const retry = (delayMs: number): Outcome => ({ status: "retry", error: "no", attempts: 1, delayMs });
