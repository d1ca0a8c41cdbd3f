import { afterAll, describe, expect, it } from "vitest";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { dead, joined, PUBLISHED, type Consumer } from "../../../src/testing/store/consumer.ts";
import { payloads } from "../../../src/testing/store/enqueuing.ts";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import { mongoScene, type Scene } from "../../support/mongodb-scene.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

/** Messages 1 and 2 of a key; the first is dead and holds the second. */
async function withLetter(on: Scene): Promise<{ consumer: Consumer; id: string }> {
  const consumer = await joined(on.store);
  consumer.judge = () => dead(1, true, "poison");
  await on.enqueue("a1", "a2");
  for (let i = 0; i < 50 && (await on.store.admin.dead({})).length === 0; i++) {
    await consumer.session.tend();
    await consumer.drain();
  }
  consumer.judge = () => PUBLISHED;
  return { consumer, id: (await on.store.admin.dead({}))[0]!.id };
}

describe.skipIf(slot.skipped)("edits on MongoDB", () => {
  it("are in the document itself, so that a relay of any version delivers them", async () => {
    await using on = await mongoScene(slot.server.url);
    const { id } = await withLetter(on);
    await on.store.admin.edit({ relay: "r", id }, { payload: { mended: true }, headers: { own: 1 } });
    const db = on.database.client.db(on.database.name);
    const outbox = db.collection<{ _id: string; headers?: unknown; payload?: unknown }>("outbox");
    expect(await outbox.findOne({ _id: id })).toMatchObject({
      payload: { mended: true },
      headers: { own: 1 },
      status: "dead",
    });
    await on.store.admin.edit({ relay: "r", id }, { headers: {} });
    const document = await outbox.findOne({ _id: id });
    expect([document?.headers, document?.payload]).toEqual([undefined, { mended: true }]);
  });

  it("are whole or not at all, with what is noted of them", async () => {
    await using on = await mongoScene(slot.server.url);
    const { consumer, id } = await withLetter(on);
    for (const broken of ["outbox", "outbox_dead", "outbox_changes"]) {
      on.hook.intercept = ({ collection, method }, proceed) => {
        if (collection === broken && method === "updateOne") throw new Error("the connection broke");
        return proceed();
      };
      await expect(on.broken.admin.edit({ relay: "r", id }, { payload: broken })).rejects.toThrow("broke");
    }
    expect((await on.store.admin.dead({}))[0]).toMatchObject({ edited: false, body: "1" });
    expect((await on.store.admin.changes({})).changes).toEqual([]);
    await on.store.admin.requeue({ id });
    expect(payloads(await consumer.take(2))).toEqual([1, 2]);
  });

  it("requeue no part of the letters without a note of it", async () => {
    await using on = await mongoScene(slot.server.url);
    const { id } = await withLetter(on);
    on.hook.intercept = ({ collection, method }, proceed) => {
      if (collection === "outbox_changes" && method === "updateOne") throw new Error("the connection broke");
      return proceed();
    };
    await expect(on.broken.admin.requeue({ id })).rejects.toThrow("broke");
    expect((await on.store.admin.dead({}))[0]?.command).toBe(null);
  });

  it("without transactions come as far as the letter, and from there to the document", async () => {
    await using on = await mongoScene(slot.server.url);
    const { consumer, id } = await withLetter(on);
    const plain = createMongoStore({ client: on.hook.client, transactions: false });
    // It dies between the letter and the document.
    on.hook.intercept = ({ collection, method }, proceed) => {
      if (collection === "outbox" && method === "updateOne") throw new Error("the process died");
      return proceed();
    };
    const anna = plain.admin.by({ actor: "anna" });
    await expect(anna.edit({ relay: "r", id }, { payload: "mended", headers: { own: 1 } })).rejects.toThrow("died");
    on.hook.intercept = undefined;
    expect((await plain.admin.dead({}))[0]).toMatchObject({ edited: true, body: '"mended"' });
    expect(payloads([(await plain.admin.original({ relay: "r", id }))!])).toEqual([1]);
    expect(await anna.requeue({ id })).toBe(1);
    const [delivered, ...rest] = await consumer.take(2);
    expect([delivered?.body, delivered?.headers["own"], ...payloads(rest)]).toEqual(['"mended"', 1, 2]);
    const { changes } = await plain.admin.changes({});
    expect(changes.map(({ actor, action, count }) => [actor, action, count])).toEqual([
      ["anna", "requeue", 1],
      // The note is there though the edit was not known to be done.
      ["anna", "edit", 0],
    ]);
  });
});
