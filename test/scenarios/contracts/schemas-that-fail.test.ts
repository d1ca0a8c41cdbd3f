import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import * as mini from "zod/mini";
import { z as z3 } from "zod/v3";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import type { StandardSchema } from "../../../src/core/standard-schema.ts";
import {
  createInbox,
  createOutbox,
  createRelay,
  defineEvents,
  type RelayEvent,
  type Store,
} from "../../../src/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

const host = (text: string): string => new URL(text).host;
const rejects = () => Promise.reject(new Error("unheard"));

const LIBRARIES = [
  ["zod", z.string().transform(host), z.string().refine(rejects)],
  ["zod/mini", mini.pipe(mini.string(), mini.transform(host)), mini.string().check(mini.refine(rejects))],
  ["zod 3", z3.string().transform(host), z3.string().refine(rejects)],
  [
    "valibot",
    v.pipe(v.string(), v.transform(host)),
    v.object({ a: v.pipeAsync(v.string(), v.checkAsync(rejects)) as never }),
  ],
  ["arktype", type("string").pipe(host), type("string").narrow(rejects as never)],
] as const;

const anything: StandardSchema = {
  "~standard": { version: 1, vendor: "none", validate: (value) => ({ value }) },
};
const define = (schema: unknown) => defineEvents({ visited: { stream: "s", schema: schema as StandardSchema } });
const visited = (payload: unknown) => ({ type: "visited", key: "k", payload }) as const;

describe.skipIf(!hasPostgres()).each(LIBRARIES)("a schema of %s", (library, throwing, late) => {
  /** Messages that a writer without the schema has written, and how far a handler with it comes with them. */
  async function handled(schema: unknown, payloads: readonly unknown[]) {
    const database = await outboxDatabase();
    onTestFinished(() => database[Symbol.asyncDispose]());
    const store: Store<object> = database.store;
    const unchecked = createOutbox({ store, events: define(anything) });
    await store.ledger.transaction((tx) => unchecked.enqueue(tx, payloads.map(visited)));
    const seen: unknown[] = [];
    const inbox = createInbox({ store, consumer: "reader", events: define(schema) });
    inbox.on("visited", async (_tx, { payload }) => void seen.push(payload));
    const bus = createInProcessBus();
    await inbox.start(bus);
    const events: RelayEvent[] = [];
    const relay = createRelay({ store, name: "r", publisher: bus, onEvent: (event) => void events.push(event) });
    await relay.drainOnce({ deadlineMs: 3000 });
    await inbox.stop();
    const checked = createOutbox({ store, events: define(schema) });
    const enqueue = (payload: unknown) => store.ledger.transaction((tx) => checked.enqueue(tx, visited(payload)));
    return { store, seen, events, enqueue };
  }

  it("that throws makes a dead letter with the reason, and what comes after it goes on", async () => {
    const { store, seen, enqueue } = await handled(throwing, ["no url", "https://example.org/a"]);
    expect(seen).toEqual(["example.org"]);
    const [dead, ...others] = await store.admin.dead({});
    expect(others).toEqual([]);
    expect(dead).toMatchObject({ key: "k", attempts: 1 });
    expect(dead?.lastError).toMatch(/the schema threw TypeError.*Invalid URL/);
    await expect(enqueue("no url")).rejects.toMatchObject({
      code: "invalid_payload",
      cause: expect.objectContaining({ code: "ERR_INVALID_URL" }),
    });
    expect(await store.admin.find({ key: "k" })).toHaveLength(2);
  });

  it("that waits writes nothing, kills nothing and says so", async () => {
    const payload = library === "valibot" ? { a: "x" } : "x";
    const { store, seen, events, enqueue } = await handled(late, [payload]);
    expect(seen).toEqual([]);
    expect(await store.admin.dead({})).toEqual([]);
    expect(events.find(({ type: name }) => name === "route_out")).toMatchObject({ route: "visited: its schema" });
    await expect(enqueue(payload)).rejects.toMatchObject({ code: "invalid_option", field: "visited.schema" });
    expect(await store.admin.find({ key: "k" })).toHaveLength(1);
  });
});
