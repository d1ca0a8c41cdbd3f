import assert from "node:assert/strict";
import { diagnose } from "../../doctor/diagnose.ts";
import { joined, retry } from "./consumer.ts";
import { enqueue, message } from "./enqueuing.ts";
import type { StoreCase } from "./store-context.ts";

const role = "doctor";

/** Under load an answer takes long, and that is no fault of the store. */
const PATIENT = { timeoutMs: 30_000 };

/** What is wrong, seen from outside. */
export const doctorCases: readonly StoreCase[] = [
  {
    role,
    name: "carries out every check, and finds no fault with relays that have nothing to do",
    async run({ store }) {
      const consumer = await joined(store);
      await consumer.session.leave();
      const found = await diagnose(store, PATIENT);
      assert.deepEqual(
        found.filter(({ finding }) => /could not be looked at|undefined/.test(finding)),
        [],
      );
      const ofRelays = [
        "schema",
        "connection",
        "paused_relay",
        "idle_relay",
        "old_backlog",
        "parked_messages",
        "dead_letters",
        "unread_streams",
        "failed_receipts",
        "stuck_keys",
      ];
      assert.deepEqual(
        found.filter(({ check }) => ofRelays.includes(check)),
        [],
      );
    },
  },
  {
    role,
    name: "finds a relay that no process runs, one that was paused, and a key that fails again and again",
    async run(context) {
      const { store } = context;
      const checks = ["idle_relay", "paused_relay", "stuck_keys"];
      const names = async (): Promise<string[]> =>
        (await diagnose(store, { ...PATIENT, only: checks })).map(({ check }) => check).sort();
      const consumer = await joined(store, {}, { judge: (_, n) => retry(n + 1, n < 5 ? 0 : 60_000) });
      await enqueue(context, message(1));
      for (let attempt = 0; attempt < 6; attempt++) {
        await consumer.session.tend();
        await consumer.drain();
      }
      assert.deepEqual(await names(), ["stuck_keys"]);
      await consumer.session.leave();
      assert.deepEqual(await names(), ["idle_relay", "stuck_keys"]);
      await store.admin.pause("r");
      assert.deepEqual(await names(), ["paused_relay", "stuck_keys"]);
      const unknown = diagnose(store, { onlly: checks } as never);
      await assert.rejects(unknown, /Did you mean "only"/);
      const misspelt = diagnose(store, { only: ["idle_realy"] });
      await assert.rejects(misspelt, { code: "invalid_option", field: "only", fix: 'Did you mean "idle_relay"?' });
    },
  },
  {
    role,
    name: "finds that messages behind failed ones come near to what a process holds",
    async run(context) {
      const { store } = context;
      const found = async () => (await diagnose(store, { ...PATIENT, only: ["parked_messages"] })).map((one) => one);
      const consumer = await joined(store, { maxParked: 5 }, { judge: () => retry(1, 60_000) });
      await enqueue(context, ...[1, 2, 3].map((n) => message(n, { key: `k${n}` })));
      await consumer.drain();
      assert.deepEqual(await found(), []);
      await enqueue(context, message(4, { key: "k4" }));
      await consumer.drain();
      const [near] = await found();
      assert.equal(near?.severity, "warning");
      assert.match(near?.finding ?? "", /^Relay "r" has 4 messages behind failed ones; `maxParked` is 5$/);
      await enqueue(context, message(5, { key: "k5" }));
      await consumer.drain();
      assert.deepEqual(
        (await found()).map(({ severity }) => severity),
        ["error"],
      );
      await consumer.session.leave();
      assert.deepEqual(await found(), []);
    },
  },
  {
    role,
    name: "finds streams that no relay reads, and receipts of attempts that failed",
    async run(context) {
      const { store } = context;
      const found = async (): Promise<string[]> =>
        (await diagnose(store, { ...PATIENT, only: ["unread_streams", "failed_receipts"] })).map(
          ({ check, finding }) => `${check}: ${finding}`,
        );
      assert.deepEqual(await found(), []);
      await enqueue(context, message(1, { stream: "orders" }), message(2, { stream: "oders" }));
      assert.equal((await found()).length, 2, "there is no relay at all");
      const consumer = await joined(store, { relay: "r", streams: ["orders"] });
      const [unread, ...others] = await found();
      assert.match(unread ?? "", /^unread_streams: No relay reads the stream oders/);
      assert.deepEqual(others, []);
      await consumer.session.leave();
      const receipt = { consumer: "payments", messageId: "m-1", type: "t", correlationId: null };
      await store.ledger.fail(receipt, "declined");
      const failed = (await found()).filter((one) => one.startsWith("failed_receipts"));
      assert.equal(failed.length, 1);
      assert.match(failed[0]!, /Consumer "payments" has 1 receipt of a failed attempt/);
      await store.ledger.transaction((tx) => store.ledger.receive(tx, receipt, "processed"));
      assert.ok((await found()).every((one) => one.startsWith("unread_streams")));
    },
  },
  {
    role,
    name: "says of missing tables that they are missing, and looks at none",
    async run(context) {
      await context.spoilSchema("missing");
      const found = await diagnose(context.store, PATIENT);
      assert.deepEqual(
        found
          .filter(({ severity }) => severity === "error")
          .map(({ check }) => check)
          .filter((check) => check !== "durability"),
        ["schema"],
      );
      assert.match(found.find(({ check }) => check === "schema")?.fix ?? "", /txbox migrate/);
    },
  },
];
