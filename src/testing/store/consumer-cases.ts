import assert from "node:assert/strict";
import type { Receipt } from "../../core/contracts.ts";
import { uuidv7, uuidv7At } from "../../core/uuid.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "consumers";
const DAY_MS = 86_400_000;

const receiptOf = (consumer: string, messageId: string): Receipt => {
  return { consumer, messageId, type: "t", correlationId: null };
};

async function receive({ store }: StoreContext, consumer: string, id: string, status: "processed" | "received") {
  const { ledger } = store;
  await ledger.transaction((tx) => ledger.receive(tx, receiptOf(consumer, id), status));
}

const dated = (ids: readonly string[]) => ids.map((id) => ({ id, createdAt: new Date() }));

/** What the consumers of a store know, without asking for each by its name. */
export const consumerCases: readonly StoreCase[] = [
  {
    role,
    name: "tells the receipts of all consumers by the ids of messages",
    async run(context) {
      const { admin, ledger } = context.store;
      const ids = [uuidv7(), uuidv7At(Date.now() - 2 * DAY_MS), "chosen-1", uuidv7(), "chosen-2"];
      const [one, older, chosen, unknown, failed] = ids as [string, string, string, string, string];
      for (const consumer of ["b", "a"]) await receive(context, consumer, one, "processed");
      await receive(context, "a", older, "received");
      await receive(context, "c", chosen, "processed");
      await ledger.fail(receiptOf("c", failed), "no funds");
      await ledger.fail(receiptOf("c", failed), "still none");
      const found = await admin.receiptsOf(dated([...ids, one]));
      assert.deepEqual(
        found.map(({ id, consumer, status, attempts }) => [id, consumer, status, attempts]),
        [
          [one, "a", "processed", 1],
          [one, "b", "processed", 1],
          [older, "a", "received", 0],
          [chosen, "c", "processed", 1],
          [failed, "c", "failed", 2],
        ],
      );
      assert.match(found.at(-1)?.lastError ?? "", /still none/);
      assert.ok(found.every(({ receivedAt }) => Math.abs((receivedAt?.getTime() ?? 0) - Date.now()) < 120_000));
      assert.ok(found[0]?.processedAt instanceof Date);
      assert.deepEqual(await admin.receiptsOf(dated([unknown, uuidv7At(0), uuidv7At(Date.now() + 900 * DAY_MS)])), []);
    },
  },
  {
    role,
    name: "puts receipts per source under the name of their consumer",
    async run(context) {
      const { admin, ledger } = context.store;
      if (ledger.keepScope === undefined) return;
      assert.equal(await ledger.keepScope("c", "source"), "source");
      const [twice, once] = [uuidv7(), "chosen"];
      await ledger.fail(receiptOf("c@orders", twice), "no");
      await receive(context, "c@refunds", twice, "processed");
      await receive(context, "c@orders", once, "processed");
      await receive(context, "cc", once, "processed");
      assert.deepEqual(
        (await admin.receiptsOf(dated([twice, once]))).map(({ id, consumer, status }) => [id, consumer, status]),
        [
          [twice, "c", "processed"],
          [once, "c", "processed"],
          [once, "cc", "processed"],
        ],
      );
      assert.deepEqual(
        (await admin.consumers()).map(({ consumer, failed }) => [consumer, failed]),
        [
          ["c", 1],
          ["cc", 0],
        ],
      );
    },
  },
  {
    role,
    name: "lists consumers by receipts and samples, with what failed and when they last received something",
    async run(context) {
      const { admin, ledger } = context.store;
      assert.deepEqual(await admin.consumers(), []);
      await receive(context, "payments", uuidv7(), "processed");
      await ledger.fail(receiptOf("payments", uuidv7()), "no");
      await ledger.fail(receiptOf("mail", "chosen"), "no");
      const counts = {
        published: 0,
        retried: 0,
        dead: 0,
        unavailable: 0,
        processed: 3,
        duplicate: 0,
        failed: 0,
        rejected: 0,
      };
      const sample = { owner: "o", lastError: undefined, ...counts };
      await context.store.history?.record({ of: { consumer: "skips" }, ...sample });
      await context.store.history?.record({ of: { relay: "no consumer" }, ...sample });
      const found = await admin.consumers();
      assert.deepEqual(
        found.map(({ consumer, failed }) => [consumer, failed]),
        [["mail", 1], ["payments", 1], ...(context.store.history === undefined ? [] : [["skips", 0]])],
      );
      assert.ok(found.every(({ lastReceivedAt }) => Math.abs((lastReceivedAt?.getTime() ?? 0) - Date.now()) < 120_000));
    },
  },
  {
    role,
    name: "refuses lists of messages that are none",
    async run({ store: { admin } }) {
      const one = { id: "x", createdAt: new Date() };
      const wrong = [
        undefined,
        null,
        {},
        one,
        [],
        Array.from({ length: 1001 }, () => one),
        ["x"],
        [{ id: "x" }],
        [{ id: { $gt: "" }, createdAt: new Date() }],
        [{ id: "x", createdAt: "now" }],
      ] as never[];
      for (const messages of wrong)
        await assert.rejects(async () => admin.receiptsOf(messages), { code: "invalid_option" });
    },
  },
];
