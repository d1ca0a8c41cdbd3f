import assert from "node:assert/strict";
import type { Change } from "../../core/contracts.ts";
import { dead, joined } from "./consumer.ts";
import { enqueue, message, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "changes";

async function withLetters(context: StoreContext, count: number) {
  const consumer = await joined(context.store, {}, { judge: () => dead(1, false, "poison") });
  await enqueue(context, ...range(1, count).map((n) => message(n, { key: `k${n}` })));
  for (let i = 0; i < 20 && (await context.store.admin.dead({ limit: 10_000 })).length < count; i++) {
    await consumer.session.tend();
    await consumer.drain();
  }
  return consumer;
}

const shown = ({ actor, reason, action, relay, count }: Change) => [actor, reason, action, relay, count];

export const changeCases: readonly StoreCase[] = [
  {
    role,
    name: "are noted with who made them and why, newest first",
    async run(context) {
      await withLetters(context, 3);
      const admin = context.store.admin.by({ actor: "anna", reason: "after the deploy" });
      const [letter] = await admin.dead({});
      await admin.pause("r");
      await context.store.admin.by({ actor: "bert" }).resume("r");
      await admin.edit({ relay: "r", id: letter!.id }, { payload: 9 });
      await admin.requeue({ relay: "r", limit: 2 });
      await admin.discard({ key: "k3" });
      const { changes, next } = await context.store.admin.changes({});
      assert.equal(next, null);
      assert.deepEqual(changes.map(shown), [
        ["anna", "after the deploy", "discard", null, 1],
        ["anna", "after the deploy", "requeue", "r", 2],
        ["anna", "after the deploy", "edit", "r", 1],
        ["bert", null, "resume", "r", null],
        ["anna", "after the deploy", "pause", "r", null],
      ]);
      assert.deepEqual(changes[0]?.details, { key: "k3" });
      assert.equal(changes[2]?.details["id"], letter!.id);
      assert.ok(changes.every(({ at }) => Math.abs(at.getTime() - Date.now()) < 120_000));
    },
  },
  {
    role,
    name: "have the user of the database as their actor where no other is named",
    async run(context) {
      await (await joined(context.store)).session.leave();
      await context.store.admin.pause("r");
      const [change] = (await context.store.admin.changes({})).changes;
      assert.equal(change?.action, "pause");
      assert.ok(change.actor.length > 0);
      assert.equal(change.reason, null);
    },
  },
  {
    role,
    name: "are not noted for what was refused or changed nothing",
    async run(context) {
      await (await joined(context.store)).session.leave();
      const admin = context.store.admin.by({ actor: "anna" });
      await assert.rejects(admin.pause("no such relay"), { code: "not_found" });
      await assert.rejects(admin.drop("no such relay"), { code: "not_found" });
      await assert.rejects(admin.edit({ relay: "r", id: "none" }, { payload: 1 }), { code: "not_found" });
      assert.equal(await admin.requeue({ relay: "r", all: true }), 0);
      assert.deepEqual(await admin.changes({}), { changes: [], next: null });
    },
  },
  {
    role,
    name: "of a large requeue are one, with the number of all its parts",
    async run(context) {
      const count = 2300;
      await withLetters(context, count);
      assert.equal(await context.store.admin.by({ actor: "anna" }).requeue({ relay: "r", all: true }), count);
      const { changes } = await context.store.admin.changes({});
      assert.deepEqual(changes.map(shown), [["anna", null, "requeue", "r", count]]);
    },
  },
  {
    role,
    name: "of a large requeue that is broken off have the number that was requeued",
    async run(context) {
      await withLetters(context, 1500);
      const broken = new Error("broken off");
      const requeue = context.store.admin.by({ actor: "anna" }).requeue({ relay: "r", all: true }, () => {
        throw broken;
      });
      await assert.rejects(requeue, broken);
      const waiting = (await context.store.admin.dead({ limit: 10_000 })).filter(({ command }) => command !== null);
      const [change] = (await context.store.admin.changes({})).changes;
      assert.ok(waiting.length > 0 && waiting.length < 1500);
      assert.equal(change?.count, waiting.length);
    },
  },
  {
    role,
    name: "of one redrive are one",
    async run(context) {
      await withLetters(context, 4);
      const admin = context.store.admin.by({ actor: "anna", reason: "slowly", redrive: "run-1" });
      const letters = await admin.dead({});
      for (const letter of letters.slice(0, 3)) assert.equal(await admin.requeue({ letters: [letter] }), 1);
      await context.store.admin.by({ actor: "bert", redrive: "run-2" }).requeue({ letters: [letters[3]!] });
      const { changes } = await admin.changes({});
      assert.deepEqual(changes.map(shown), [
        ["bert", null, "redrive", null, 1],
        ["anna", "slowly", "redrive", null, 3],
      ]);
      const stopped = { relay: "r", what: "txbox dead redrive", requeued: 3 };
      await context.store.admin.by({ actor: "carl", reason: "it dies again" }).noteStop(stopped);
      const [stop] = (await admin.changes({ relay: "r" })).changes;
      assert.deepEqual(stop && shown(stop), ["carl", "it dies again", "stop", "r", null]);
      assert.deepEqual(stop?.details, { what: "txbox dead redrive", requeued: 3 });
      await assert.rejects(() => admin.noteStop({ ...stopped, requeued: -1 }), { code: "invalid_option" });
    },
  },
  {
    role,
    name: "come page by page, of a relay and of a time",
    async run(context) {
      await (await joined(context.store)).session.leave();
      const { admin } = context.store;
      for (let i = 0; i < 5; i++) await admin.by({ actor: `a${i}` }).pause("r");
      const actors: string[] = [];
      for (let after: string | undefined; ;) {
        const page = await admin.changes({ limit: 2, ...(after === undefined ? {} : { after }) });
        actors.push(...page.changes.map(({ actor }) => actor));
        if (page.next === null) break;
        after = page.next;
      }
      assert.deepEqual(actors, ["a4", "a3", "a2", "a1", "a0"]);
      assert.equal((await admin.changes({ relay: "r", limit: 3 })).changes.length, 3);
      assert.deepEqual((await admin.changes({ relay: "another" })).changes, []);
      assert.deepEqual((await admin.changes({ since: new Date(Date.now() + 3_600_000) })).changes, []);
      assert.equal((await admin.changes({ since: new Date(Date.now() - 3_600_000) })).changes.length, 5);
    },
  },
  {
    role,
    name: "outlive the relay that is dropped, and its rewinds",
    needs: ["log"],
    async run(context) {
      await (await joined(context.store)).session.leave();
      const admin = context.store.admin.by({ actor: "anna", reason: "gone" });
      await admin.rewind("r", "earliest");
      await admin.rewind("r", { position: 1n });
      await admin.rewind("r", { time: new Date("2026-01-01T00:00:00Z") });
      await admin.drop("r");
      const { changes } = await admin.changes({ relay: "r" });
      assert.deepEqual(
        changes.map(({ action, details }) => [action, details]),
        [
          ["drop", {}],
          ["rewind", { to: { time: "2026-01-01T00:00:00.000Z" } }],
          ["rewind", { to: { position: "1" } }],
          ["rewind", { to: "earliest" }],
        ],
      );
    },
  },
  {
    role,
    name: "refuse an author that says nothing, or too much",
    async run({ store: { admin } }) {
      const wrong = [
        {},
        { actor: "" },
        { actor: 1 },
        { actor: "x".repeat(201) },
        { actor: "a", reason: "" },
        { actor: "a", why: "x" },
      ];
      for (const author of wrong)
        assert.throws(() => admin.by(author as never), { code: "invalid_option" }, JSON.stringify(author));
      for (const query of [{ after: "nonsense!" }, { limit: 0 }, { limit: 1001 }, { since: "today" }, { actor: "a" }])
        await assert.rejects(admin.changes(query as never), { code: "invalid_option" }, JSON.stringify(query));
    },
  },
];
