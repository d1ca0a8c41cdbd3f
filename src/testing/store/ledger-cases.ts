import assert from "node:assert/strict";
import type { Receipt } from "../../core/contracts.ts";
import { uuidv7, uuidv7At } from "../../core/uuid.ts";
import { createInbox } from "../../inbox/inbox.ts";
import { within } from "../eventually.ts";
import { joined } from "./consumer.ts";
import { enqueueIn, message, payloads } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "ledger";
const DAY_MS = 86_400_000;

const receiptOf = (messageId: string, consumer = "payments"): Receipt => ({
  consumer,
  messageId,
  type: "order_made",
  correlationId: null,
});

const receive = (
  context: StoreContext,
  receipt: Receipt,
  status: "received" | "processed" = "processed",
): Promise<boolean> => context.store.ledger.transaction((tx) => context.store.ledger.receive(tx, receipt, status));

/** A handler's effect happens once. */
export const ledgerCases: readonly StoreCase[] = [
  {
    role,
    name: "receives a message once per consumer",
    async run(context) {
      for (const id of [uuidv7(), "an id of another system", "ü".repeat(90)]) {
        assert.equal(await receive(context, receiptOf(id)), true);
        assert.equal(await receive(context, receiptOf(id)), false);
        assert.equal(await receive(context, receiptOf(id, "shipping")), true);
      }
    },
  },
  {
    role,
    name: "counts receipts per source for a new consumer that wants it, and keeps to that",
    async run(context) {
      const messageOf = (source: string, id: string) => ({ id, type: "order_made", body: "{}", headers: {}, source });
      const inboxOf = (consumer: string, receiptScope: "consumer" | "source") => {
        const { store } = context;
        return createInbox({ store, consumer, receiptScope }).on("order_made", async () => undefined);
      };
      const source = { start: async () => undefined, stop: async () => undefined };
      const refused = { code: "invalid_option", field: "receiptScope" };
      for (const id of ["guessed", uuidv7()]) {
        const shared = inboxOf("shared", "consumer");
        assert.equal(await shared.handle(messageOf("orders", id)), "processed");
        assert.equal(await shared.handle(messageOf("refunds", id)), "duplicate");
        const separate = inboxOf("separate", "source");
        assert.equal(await separate.handle(messageOf("orders", id)), "processed");
        assert.equal(await separate.handle(messageOf("refunds", id)), "processed");
        assert.equal(await separate.handle(messageOf("refunds", id)), "duplicate");
        assert.equal(await separate.handle(messageOf("x".repeat(300), id)), "processed");
        assert.equal(await separate.handle(messageOf("x".repeat(301), id)), "processed");
      }
      // Neither forgets what it has seen.
      await assert.rejects(inboxOf("shared", "source").start(source), refused);
      await assert.rejects(inboxOf("shared", "source").handle(messageOf("orders", "new")), refused);
      await assert.rejects(inboxOf("separate", "consumer").start(source), refused);
      await inboxOf("shared", "consumer").start(source);
      await inboxOf("separate", "source").start(source);
      await context.store.maintenance.run();
      await assert.rejects(inboxOf("separate", "consumer").start(source), refused);
    },
  },
  {
    role,
    name: "leaves no receipt and no effect of a transaction that rolled back",
    async run(context) {
      const receipt = receiptOf(uuidv7());
      const { ledger } = context.store;
      const failing = ledger.transaction(async (tx) => {
        assert.equal(await ledger.receive(tx, receipt, "processed"), true);
        await context.note(tx, "undone");
        await enqueueIn(context, tx, [message("undone")]);
        throw new Error("handler");
      });
      await assert.rejects(failing, /handler/);
      assert.deepEqual(await context.notes(), []);
      assert.equal(await receive(context, receipt), true);
    },
  },
  {
    role,
    name: "commits receipt, effect and what the handler enqueued together",
    async run(context) {
      const receipt = receiptOf(uuidv7());
      const { ledger } = context.store;
      for (let delivery = 1; delivery <= 2; delivery++) {
        const result = await ledger.transaction(async (tx) => {
          if (!(await ledger.receive(tx, receipt, "processed"))) return "duplicate";
          await context.note(tx, "paid");
          await enqueueIn(context, tx, [message("payment_made")]);
          return "processed";
        });
        assert.equal(result, delivery === 1 ? "processed" : "duplicate");
      }
      assert.deepEqual(await context.notes(), ["paid"]);
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), ["payment_made"]);
    },
  },
  {
    role,
    name: "does not let a handler end its transaction",
    needs: ["endings"],
    async run(context) {
      const { ledger } = context.store;
      for (const [name, end] of Object.entries(context.endings ?? {})) {
        const receipt = receiptOf(uuidv7());
        const ending = ledger.transaction(async (tx) => {
          await ledger.receive(tx, receipt, "processed");
          await context.note(tx, `before ${name}`);
          await end(tx);
        });
        await assert.rejects(ending, { code: "no_transaction" }, name);
        // A handler may do what it likes with its refusal; what follows is in the same transaction or nowhere.
        const goingOn = ledger.transaction(async (tx) => {
          await ledger.receive(tx, receipt, "processed");
          await end(tx).catch(() => undefined);
          await context.note(tx, `after ${name}`);
          throw new Error("handler");
        });
        await assert.rejects(goingOn, name);
        assert.deepEqual(await context.notes(), [], name);
        assert.equal(await receive(context, receipt), true, name);
      }
    },
  },
  {
    role,
    name: "fails soon when a handler swallows an error that cost it its transaction",
    needs: ["endings"],
    async run(context) {
      const receipt = receiptOf(uuidv7());
      const { ledger } = context.store;
      for (const more of ["nothing", "a write"]) {
        let runs = 0;
        const swallowing = ledger.transaction(async (tx) => {
          runs++;
          await ledger.receive(tx, receipt, "processed");
          await context.note(tx, "lost");
          await context.breakTransaction?.(tx).catch(() => undefined);
          if (more === "a write") await context.note(tx, "lost too");
        });
        await assert.rejects(within(10_000, "the end of the transaction", swallowing));
        assert.ok(runs <= 2, `it ran ${runs} times`);
      }
      assert.deepEqual(await context.notes(), []);
      assert.equal(await receive(context, receipt), true);
    },
  },
  {
    role,
    name: "makes a concurrent duplicate wait, and decides by how the first ended",
    needs: ["concurrency"],
    async run(context) {
      for (const how of ["commit", "rollback"] as const) {
        const receipt = receiptOf(uuidv7());
        const { ledger } = context.store;
        const [received, ending] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
        const first = ledger.transaction(async (tx) => {
          assert.equal(await ledger.receive(tx, receipt, "processed"), true);
          received.resolve();
          await ending.promise;
          if (how === "rollback") throw new Error("rolled back");
        });
        first.catch(received.reject);
        await received.promise;
        let answered = false;
        const second = receive(context, receipt).finally(() => (answered = true));
        await new Promise((resolve) => setTimeout(resolve, 50));
        assert.equal(answered, false, "the duplicate waits");
        ending.resolve();
        await first.catch((error: unknown) => assert.equal(how, "rollback", String(error)));
        assert.equal(await second, how === "rollback");
      }
    },
  },
  {
    role,
    name: "lets one of many concurrent duplicates through",
    needs: ["concurrency"],
    async run(context) {
      const receipt = receiptOf(uuidv7());
      const { ledger } = context.store;
      const results = await Promise.all(
        Array.from({ length: 8 }, (_, i) =>
          ledger.transaction(async (tx) => {
            const mine = await ledger.receive(tx, receipt, "processed");
            if (mine) await context.note(tx, `effect of ${i}`);
            return mine;
          }),
        ),
      );
      assert.equal(results.filter(Boolean).length, 1);
      assert.equal((await context.notes()).length, 1);
    },
  },
  {
    role,
    name: "counts failed attempts, and takes the message when it works at last",
    async run(context) {
      const receipt = receiptOf(uuidv7());
      const { ledger } = context.store;
      assert.equal(await ledger.fail(receipt, "first"), 1);
      assert.equal(await ledger.fail(receipt, "second"), 2);
      assert.equal(await ledger.fail(receiptOf(receipt.messageId, "shipping"), "of another consumer"), 1);
      assert.equal(await receive(context, receipt), true);
      assert.equal(await receive(context, receipt), false);
    },
  },
  {
    role,
    name: "does not undo a processed message with a late failure",
    async run(context) {
      const receipt = receiptOf(uuidv7());
      assert.equal(await receive(context, receipt), true);
      assert.equal(await context.store.ledger.fail(receipt, "late"), "processed");
      assert.equal(await receive(context, receipt), false);
    },
  },
  {
    role,
    name: "takes any text as an error",
    async run(context) {
      const receipt = receiptOf(uuidv7());
      assert.equal(await context.store.ledger.fail(receipt, `\u0000\uD800${"x".repeat(100_000)}`), 1);
    },
  },
  {
    role,
    name: "stores first and processes later",
    async run(context) {
      const receipt = receiptOf(uuidv7());
      assert.equal(await receive(context, receipt, "received"), true);
      assert.equal(await receive(context, receipt, "received"), false);
      assert.equal(await context.store.ledger.fail(receipt, "the handler threw"), 1);
      assert.equal(await receive(context, receipt, "received"), false);
      assert.equal(await receive(context, receipt, "processed"), true);
      assert.equal(await receive(context, receipt, "processed"), false);
      assert.equal(await receive(context, receipt, "received"), false);
    },
  },
  {
    role,
    name: "stores a message again whose storing had failed",
    async run(context) {
      const receipt = receiptOf(uuidv7());
      assert.equal(await context.store.ledger.fail(receipt, "could not be decoded"), 1);
      assert.equal(await receive(context, receipt, "received"), true);
      assert.equal(await receive(context, receipt, "received"), false);
    },
  },
  {
    role,
    name: "takes ids of the last days and refuses one older than receipts are kept",
    async run(context) {
      const recent = receiptOf(uuidv7At(Date.now() - 5 * DAY_MS));
      assert.equal(await receive(context, recent), true);
      assert.equal(await receive(context, recent), false);
      const old = receiptOf(uuidv7At(Date.now() - 400 * DAY_MS));
      await assert.rejects(receive(context, old), { code: "receipt_expired" });
      await assert.rejects(context.store.ledger.fail(old, "error"), { code: "receipt_expired" });
    },
  },
  {
    role,
    name: "gives back what the transaction gave, and throws what it threw",
    async run(context) {
      const { ledger } = context.store;
      assert.deepEqual(await ledger.transaction(() => Promise.resolve({ n: 1 })), { n: 1 });
      const thrown = new RangeError("mine");
      await assert.rejects(
        ledger.transaction(() => Promise.reject(thrown)),
        (error) => error === thrown,
      );
    },
  },
];
