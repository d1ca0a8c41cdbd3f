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
        "dead_letters",
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
    name: "finds a relay that nobody runs, one that was paused, and a key that fails again and again",
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
