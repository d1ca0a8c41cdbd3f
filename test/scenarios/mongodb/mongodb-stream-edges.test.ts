import { setTimeout as sleep } from "node:timers/promises";
import type { Document, MongoClient } from "mongodb";
import { afterAll, describe, expect, it, vi } from "vitest";
import { systemClock } from "../../../src/core/clock.ts";
import type { QueueSession } from "../../../src/core/contracts.ts";
import { createRelay } from "../../../src/index.ts";
import { createMongoStore, type SourceEvent } from "../../../src/stores/mongodb/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { serverOrSkip, startMongodb, until } from "../../harness/index.ts";
import {
  contents,
  drain,
  firstClaim,
  join,
  mongoScene,
  numbered,
  PUBLISHED,
  type Scene,
} from "../../support/mongodb-scene.ts";
import { nextClaim } from "../../../src/testing/store/consumer.ts";
import { bySource } from "../../support/by-source.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

const scene = (): Promise<Scene> => mongoScene(slot.server.url, { source: "stream" });

/** As a person may put it there by hand. */
const byHand = (_id: unknown, fields: object = {}) => ({
  _id,
  stream: "s",
  event_type: "t",
  key: null,
  payload: 1,
  status: "new",
  waits: "ready",
  attempts: 0,
  lane: 3,
  position: 1,
  created_at: new Date(),
  next_retry_at: new Date(),
  ...fields,
});

const documentsOf = ({ database }: Scene) =>
  database.client.db().collection<{ _id: unknown; key?: string | null }>("outbox");

type Command = { command: Document; proceed: () => Promise<Document> };

/** The client of the scene; what it is to run as a command, such as all that has to do with streams, goes through `run`. */
function commanding({ database: { client } }: Scene, run: (one: Command) => Promise<Document>): MongoClient {
  const db = client.db();
  const command = db.command.bind(db);
  vi.spyOn(client, "db").mockReturnValue(db);
  vi.spyOn(db, "command").mockImplementation((...args: Parameters<typeof command>) =>
    run({ command: args[0], proceed: () => command(...args) }),
  );
  return client;
}

async function follow(on: Scene, session: QueueSession): Promise<QueueSession> {
  await until(
    async () => {
      await session.tend();
      expect(await nextClaim(session)).toBeUndefined();
      return on.events.length > 0;
    },
    { what: "the stream" },
  );
  return session;
}

describe.skipIf(slot.skipped)("documents that were edited by hand", () => {
  it("until they had no position are dead letters, and hold up nothing", async () => {
    await using on = await scene();
    const { position: _, ...without } = byHand("bad");
    await documentsOf(on).insertOne(without);
    const session = await join(on.store);
    await session.tend();
    expect(await Promise.race([nextClaim(session), sleep(5000, "it looks for ever")])).toBeUndefined();
    expect(await on.store.admin.dead({})).toMatchObject([{ id: "bad", lastError: /position/ }]);
    await session.leave();
  });

  it("until they had failed and were ready are dead letters, and do not go out for ever", async () => {
    await using on = await scene();
    const session = await follow(on, await join(on.store));
    await documentsOf(on).insertOne(byHand("bad", { status: "failed" }));
    await on.enqueue("a1");
    expect(await drain(session, 1)).toEqual(["a1"]);
    expect(await on.store.admin.dead({})).toMatchObject([{ id: "bad", lastError: /status/ }]);
    await session.leave();
  });

  it("while they were in hand go out once, and are dead letters then", async () => {
    await using on = await scene();
    const session = await follow(on, await join(on.store));
    await on.enqueue("a1");
    const claim = await firstClaim(session);
    await documentsOf(on).updateOne({ key: "a" }, { $set: { status: "done" } });
    await expect(session.settle(claim, [PUBLISHED])).rejects.toMatchObject({ code: "lease_lost" });
    await on.enqueue("b1");
    expect(await drain(session, 1)).toEqual(["b1"]);
    await until(async () => (await nextClaim(session)) === undefined && (await on.store.admin.dead({})).length === 1, {
      what: "the dead letter",
    });
    expect(await on.store.admin.dead({})).toMatchObject([{ key: "a", lastError: /status/ }]);
    await session.leave();
  });

  it("to have ids that read alike are told apart", async () => {
    await using on = await scene();
    const first = await follow(on, await join(on.store, { batch: { messages: 1, bytes: 1_000_000 } }));
    await documentsOf(on).insertMany([1, 2].map((n) => byHand({ n }, { key: "a", position: n, payload: n })));
    const claim = await firstClaim(first);
    expect(contents(claim)).toEqual(["a1"]);
    await first.settle(claim, [PUBLISHED]);
    await first.leave();
    const second = await join(on.store);
    expect(await drain(second, 1)).toEqual(["a2"]);
    expect(await nextClaim(second)).toBeUndefined();
    await second.leave();
  });
});

describe.skipIf(slot.skipped)("a relay by change stream", () => {
  it("gives others a turn while it looks in vain for what is said to be there", async () => {
    await using on = await scene();
    const session = await join(on.broken);
    // As when the primary has a message that no majority has yet.
    on.hook.intercept = ({ method, args }, proceed) =>
      method === "findOne" && JSON.stringify(args[1]).includes("txbox_ready")
        ? Promise.resolve({ _id: "not yet" })
        : proceed();
    expect(await Promise.race([nextClaim(session), sleep(8000, "it looks for ever")])).toBeUndefined();
    on.hook.intercept = undefined;
    await on.enqueue("a1");
    expect(await drain(session, 1)).toEqual(["a1"]);
    await session.leave();
  });

  it("delivers although a listener to its events throws", async () => {
    await using on = await scene();
    const warned = vi.spyOn(process, "emitWarning").mockReturnValue();
    const onEvent = (): never => {
      throw new Error("the listener is broken");
    };
    const store = bySource(createMongoStore({ client: on.database.client }), "stream", onEvent);
    const session = await join(store);
    await on.enqueue("a1");
    expect(await drain(session, 1)).toEqual(["a1"]);
    await session.leave();
    expect(warned).toHaveBeenCalledWith(
      expect.stringMatching(/onSourceEvent threw on "stream_started"/),
      "TxboxWarning",
    );
    warned.mockRestore();
  });

  it.each([
    ["from the beginning", false, /no streams here/],
    ["after a long time", true, /no streams here/],
    ["not even a look at one moment", false, /no snapshots here/],
  ] as const)("polls while no stream can be had: %s", async (_, opens, error) => {
    await using on = await scene();
    let [broken, laterMs] = [!opens, 0];
    const client = commanding(on, async ({ command, proceed }) => {
      if (broken && ("aggregate" in command || "getMore" in command)) throw new Error("no streams here");
      if (broken && error.source.includes("snapshots") && "find" in command) throw new Error("no snapshots here");
      return proceed();
    });
    const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + laterMs };
    const onEvent = (event: SourceEvent) => on.events.push(event);
    const session = await join(bySource(createMongoStore({ client, clock }), "stream", onEvent));
    if (opens) await follow(on, session);
    [broken, laterMs] = [true, opens ? 60_000 : 0];
    const looking = async (): Promise<unknown> => {
      await until(async () => (await nextClaim(session)) === undefined && on.events.at(-1)?.type === "stream_lost", {
        what: "the loss",
      });
      return undefined;
    };
    expect(await Promise.race([looking(), sleep(5000, "it looks for ever")])).toBeUndefined();
    await on.enqueue("a1");
    expect(await drain(session, 1)).toEqual(["a1"]);
    expect(on.events.at(-1)).toMatchObject({ type: "stream_lost", error });
    expect(on.events.length).toBeLessThan(20);
    await session.leave();
    vi.restoreAllMocks();
  });

  it("drains to the end though batches come slowly", async () => {
    await using on = await scene();
    const client = commanding(on, async ({ command, proceed }) => {
      if ("getMore" in command) await sleep(80);
      return proceed();
    });
    const store = bySource(createMongoStore({ client }), "stream");
    const publisher = createMemoryPublisher();
    const relay = createRelay({ store, name: "r", batchSize: 10, maintenance: false, publisher });
    await relay.drainOnce();
    await on.enqueueAll(Array.from({ length: 50 }, (_, n) => numbered(`a${n}`)));
    expect(await relay.drainOnce()).toMatchObject({ published: 50 });
    vi.restoreAllMocks();
  });
});
