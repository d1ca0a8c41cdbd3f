import { randomUUID } from "node:crypto";
import { connect } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createNatsPublisher, type NatsPublisherOptions } from "../../../src/brokers/nats/index.ts";
import type { Publisher, PublishResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";
import { eventually } from "../../../src/testing/index.ts";
import { idsOf, sample, samples } from "../../../src/testing/broker/sample-message.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startNats } from "../../harness/start-nats.ts";
import { natsWorld, type NatsWorld, storedMessages } from "../../support/nats-world.ts";

const slot = await serverOrSkip("NATS", () => startNats({ owned: true }));
await slot.stop();

const USERS = `
authorization {
  users: [
    { user: app, password: secret }
    { user: reader, password: secret, permissions: { publish: ["$JS.API.>"], subscribe: [">"] } }
  ]
}`;
const never = (): AbortSignal => new AbortController().signal;
const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

describe.skipIf(slot.skipped)("publishing to JetStream", () => {
  let world: NatsWorld;
  const made: Publisher[] = [];

  beforeAll(async () => {
    world = await natsWorld();
  });
  afterAll(async () => {
    for (const publisher of made) await publisher.close?.();
    await world[Symbol.asyncDispose]();
  });

  async function publisher(options: Partial<NatsPublisherOptions> = {}): Promise<Publisher> {
    const one = createNatsPublisher({ connection: await world.connect(), ...options });
    made.push(one);
    return one;
  }

  async function stream(name: string, config: object = {}): Promise<string> {
    await world.manager.streams.add({ name, subjects: [`${name}.>`], ...config });
    return name;
  }

  /** As the relay does: again what did not get through, and nothing behind a failure. */
  async function publishAll(one: Publisher, messages: readonly Message[]): Promise<void> {
    for (let from = 0; from < messages.length; from += 200) {
      let left = messages.slice(from, from + 200);
      await eventually(
        async () => {
          const results = await one.publish(left, never());
          left = left.filter((_, i) => results[i]?.status !== "published");
          expect(left.length).toBe(0);
        },
        { timeoutMs: 60_000, intervalMs: 1 },
      );
    }
  }

  it("links messages where keys repeat and the stream is known, and not otherwise", async () => {
    const name = await stream("linked");
    const one = await publisher();
    await one.publish(samples(name, ["a", "b"], 2), never());
    await one.publish(samples(name, ["a", "b"], 3), never());
    await one.publish(samples(name, ["c", "d", "e"], 1), never());
    const stored = await storedMessages(world, name, 13);
    const linked = stored.map(({ headers }) => headers.get("Nats-Expected-Last-Msg-Id"));
    expect(linked.slice(0, 5)).toEqual(numbers(0, 5).map(() => undefined));
    expect(linked.slice(5, 10)).toEqual(stored.slice(4, 9).map(({ headers }) => headers.get("Nats-Msg-Id")));
    expect(linked.slice(10)).toEqual([undefined, undefined, undefined]);
  });

  it.each([["{}"], ["null"], ['{"ok":true}'], ["yes"], [""]])(
    "does not take the answer %j of another subscriber of the subject for a confirm",
    async (answer) => {
      const name = `heard${randomUUID().slice(0, 8)}`;
      const listener = world.direct.subscribe(`${name}.>`, { callback: (_, message) => void message.respond(answer) });
      await world.direct.flush();
      const one = await publisher({ timeoutMs: 200 });
      const all = samples(name, ["a", "b"], 2);
      expect(new Set(statuses(await one.publish(all, never())))).toEqual(new Set(["unavailable"]));
      await stream(name);
      await publishAll(one, all);
      expect((await storedMessages(world, name, all.length)).length).toBe(all.length);
      listener.unsubscribe();
    },
  );

  it("goes on key by key when another writer comes between linked messages", async () => {
    const name = await stream("shared");
    const one = await publisher();
    await one.publish(samples(name, ["a"], 1), never());
    const writing = new AbortController();
    const other = (async () => {
      for (let n = 0; !writing.signal.aborted; n++)
        await jetstream(world.direct).publish(`${name}.other`, String(n), { msgID: `o${n}` });
    })();
    const keys = ["a", "b", "c"];
    const all = samples(name, keys, 200);
    for (let from = 0; from < all.length; from += 100) {
      expect(new Set(statuses(await one.publish(all.slice(from, from + 100), never())))).toEqual(
        new Set(["published"]),
      );
    }
    writing.abort();
    await other;
    const stored = await storedMessages(world, name, all.length);
    for (const key of keys) {
      const mine = stored
        .filter(({ headers }) => headers.get("txbox-key") === key)
        .map(({ headers }) => headers.get("txbox-id"));
      const sent = idsOf(all.filter((message) => message.key === key));
      expect(mine.slice(-sent.length)).toEqual(sent);
    }
  });

  it.each([
    ["linked", {}],
    // Every subject is new, so that its stream is not known yet.
    ["key by key", { subject: ({ stream, id }: Message): string => `${stream}.${id}` }],
  ])("keeps the order of keys on a stream that is full every now and then, %s", async (how, options) => {
    const keys = 5;
    const name = await stream(`full-${how.length}`, { retention: "workqueue", discard: "new", max_msgs: 20 });
    await world.manager.consumers.add(name, { durable_name: "reader", ack_policy: "explicit", max_ack_pending: 1 });
    const all = samples(name, numbers(0, keys).map(String), 1000 / keys);
    const one = await publisher(options);
    const got = new Map<string, number[]>();
    const reader = await jetstream(world.direct).consumers.get(name, "reader");
    const reading = (async () => {
      let count = 0;
      for await (const message of await reader.consume({ max_messages: 5 })) {
        const key = message.headers?.get("txbox-key") ?? "";
        got.set(key, [...(got.get(key) ?? []), Number(message.string())]);
        message.ack();
        if (++count === all.length) break;
      }
    })();
    let refused = 0;
    const counting: Publisher = {
      keepsKeyOrder: true,
      async publish(messages, signal) {
        const results = await one.publish(messages, signal);
        expect(statuses(results).filter((status) => status === "failed" || status === "rejected")).toEqual([]);
        refused += results.filter((result) => result.status === "unavailable" && result.error !== undefined).length;
        return results;
      },
    };
    await publishAll(counting, all);
    await reading;
    expect(refused, how).toBeGreaterThan(0);
    for (const numbered of got.values()) expect(numbered).toEqual(numbers(0, 1000 / keys));
    expect(got.size).toBe(keys);
  });

  it("rejects what is too large for the stream, and holds back its key alone", async () => {
    const name = await stream("small", { max_msg_size: 2000 });
    const one = await publisher();
    await one.publish([sample(name, 0)], never());
    const large = sample(name, "x".repeat(3000), { key: "a" });
    const batch = [sample(name, 1, { key: "a" }), large, sample(name, 2, { key: "a" }), sample(name, 3, { key: "b" })];
    const results = await one.publish(batch, never());
    expect(statuses(results)).toEqual(["published", "rejected", "held", "published"]);
    expect(results[1]).toMatchObject({
      error: { code: "payload_too_large", fix: expect.stringMatching(/max_msg_size/) },
    });
  });

  it.each([{ max_msgs: 3 }, { max_bytes: 2000 }])(
    "keeps the messages of a stream that is full (%o), sends all others, and goes on when there is room",
    async (limit) => {
      const full = await stream(`full-${randomUUID().slice(0, 8)}`, { ...limit, discard: "new" });
      const free = await stream(`free-${randomUUID().slice(0, 8)}`);
      const one = await publisher();
      // Linked and one by one.
      for (let round = 0; round < 2; round++) {
        const batch = samples(full, ["a", "b"], 10).flatMap((message) => [message, sample(free, round)]);
        const results = await one.publish(batch, never());
        const of = (name: string): PublishResult[] => results.filter((_, i) => batch[i]?.stream === name);
        expect(new Set(statuses(of(free)))).toEqual(new Set(["published"]));
        const out = of(full).filter(({ status }) => status === "unavailable");
        expect(out).toHaveLength(2);
        for (const result of out) expect(result).toMatchObject({ route: full });
        expect(new Set(statuses(of(full)))).toEqual(
          new Set(round === 0 ? ["published", "unavailable", "held"] : ["unavailable", "held"]),
        );
      }
      await world.manager.streams.update(full, { max_msgs: -1, max_bytes: -1 });
      expect(statuses(await one.publish([sample(full, 1)], never()))).toEqual(["published"]);
    },
  );

  it("keeps the messages of a stream that is sealed, gone, or cannot be declared, and sends all others", async () => {
    const free = await stream("free");
    const sealed = await stream("sealed");
    const gone = await stream("gone");
    const one = await publisher();
    const batch = (): Message[] => [sample(sealed, 1), sample(gone, 2), sample(free, 3)];
    expect(statuses(await one.publish(batch(), never()))).toEqual(["published", "published", "published"]);
    await world.manager.streams.update(sealed, { sealed: true } as never);
    await world.manager.streams.delete(gone);
    const results = await one.publish(batch(), never());
    expect(results).toMatchObject([
      { status: "unavailable", route: sealed },
      { status: "unavailable", route: `${gone}.sampled` },
      { status: "published" },
    ]);
    await stream("shop-all", { subjects: ["shop-new.>"] });
    const declaring = await publisher({ declare: true });
    expect(await declaring.publish([sample("shop-new", 1), sample(free, 2)], never())).toMatchObject([
      { status: "unavailable", route: "shop-new", error: { message: expect.stringMatching(/overlap/) } },
      { status: "published" },
    ]);
  });

  it("has a message once that is sent twice", async () => {
    const name = await stream("twice");
    const one = await publisher();
    const batch = samples(name, ["a", "b"], 5);
    for (let i = 0; i < 2; i++)
      expect(new Set(statuses(await one.publish(batch, never())))).toEqual(new Set(["published"]));
    expect((await storedMessages(world, name, 10)).length).toBe(10);
  });

  it("creates streams when it may, with settings of JetStream, and again when they are gone", async () => {
    const one = await publisher({ declare: { max_age: 3600e9 } });
    for (let round = 0; round < 2; round++) {
      await publishAll(one, samples("shop.declared", ["a"], 3));
      const { config, state } = await world.manager.streams.info("shop%2Edeclared");
      expect(config).toMatchObject({ subjects: ["shop.declared.>"], storage: "file", max_age: 3600e9 });
      expect(state.messages).toBe(3);
      await world.manager.streams.delete("shop%2Edeclared");
    }
  });

  it("names the stream and the option when the expected stream is another", async () => {
    const name = await stream("actual");
    const one = await publisher({ streamName: "expected" });
    const [result] = await one.publish([sample(name, 1)], never());
    expect(result).toMatchObject({ status: "rejected", error: { field: "streamName", code: "permanent" } });
    expect(String(result?.status === "rejected" && result.error)).toMatch(/expected stream does not match.*streamName/);
    expect((await storedMessages(world, name, 0)).length).toBe(0);
  });

  it("spreads keys over partitions", async () => {
    const name = await stream("parts");
    const one = await publisher({ partitions: 4 });
    await one.publish(samples(name, numbers(0, 40).map(String), 1), never());
    const subjects = (await storedMessages(world, name, 40)).map(({ subject }) => subject);
    expect(new Set(subjects)).toEqual(new Set(numbers(0, 4).map((n) => `${name}.${n}.sampled`)));
  });

  it("takes subjects of the user's own, and rejects those that cannot be", async () => {
    const name = await stream("own");
    const one = await publisher({ subject: ({ key }) => (key === "bad" ? "a b" : `${name}.by.${key}`) });
    const results = await one.publish([sample(name, 1, { key: "x" }), sample(name, 2, { key: "bad" })], never());
    expect(statuses(results)).toEqual(["published", "rejected"]);
    expect((await storedMessages(world, name, 1))[0]?.subject).toBe(`${name}.by.x`);
  });

  it("gives nothing to a client that is not connected, so that nothing goes out later", async () => {
    await using own = await natsWorld();
    const one = createNatsPublisher({ connection: await own.connect() });
    await own.server.kill();
    await eventually(async () => {
      await expect(one.publish([sample(own.stream, 1)], never())).rejects.toMatchObject({ code: "unavailable" });
    });
    await own.server.restart();
    await eventually(async () =>
      expect(statuses(await one.publish([sample(own.stream, 2)], never()))).toEqual(["published"]),
    );
    const stored = await storedMessages(own, own.stream, 1);
    expect(stored.map(({ body }) => Buffer.from(body).toString())).toEqual(["2"]);
    await one.close?.();
  });

  it("says what the user may not do, and that a connection is closed", async () => {
    await using server = await startNats({ owned: true, config: USERS });
    await expect(connect({ servers: server.url, user: "app", pass: "wrong" })).rejects.toThrow(/[Aa]uthorization/);
    const app = await connect({ servers: server.url, user: "app", pass: "secret" });
    const owner = createNatsPublisher({ connection: app, declare: true });
    expect(statuses(await owner.publish([sample("orders", 1)], never()))).toEqual(["published"]);
    const reader = await connect({ servers: server.url, user: "reader", pass: "secret" });
    const one = createNatsPublisher({ connection: reader });
    const [result] = await one.publish([sample("orders", 2)], never());
    expect(result).toMatchObject({
      status: "unavailable",
      route: "orders.sampled",
      error: { fix: "Give this user the right to publish to orders.sampled" },
    });
    await reader.close();
    await expect(one.publish([sample("orders", 3)], never())).rejects.toThrow(/closed.*maxReconnectAttempts: -1/);
    await app.close();
  });
});
