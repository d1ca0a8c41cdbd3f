import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { createOutbox } from "../../outbox/outbox.ts";
import { joined } from "./consumer.ts";
import { begin, enqueue, enqueueIn, message, payloads, sorted } from "./enqueuing.ts";
import type { AnyTx, SoleClient, StoreCase, StoreContext } from "./store-context.ts";

const role = "writer";
const undone = new Error("undone");
const refused = { code: "no_transaction" };

/** A transaction that has ended writes nothing more: not by itself, and not in another one. */
export const endedTransactionCases: readonly StoreCase[] = [
  {
    role,
    name: "refuses a transaction that has committed, and one that was rolled back",
    async run(context) {
      await using client = await soleClient(context);
      for (const how of ["commit", "rollback"] as const) {
        const ended = await endedBy(client, how);
        await assert.rejects(enqueueIn(client, ended, [message("late")]), refused);
        await assert.rejects(enqueueIn(client, ended, [message("late"), message("later")]), refused);
        await assert.rejects(createOutbox({ store: client.store }).lockKey(ended, { stream: "s", key: "k" }), refused);
      }
      await enqueue(client, message("next"));
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), ["next"]);
    },
  },
  {
    role,
    name: "takes what was not awaited into its transaction, or refuses it",
    async run(context) {
      await using client = await soleClient(context);
      const taken: unknown[] = [];
      for (const how of ["commit", "rollback"] as const) {
        for (const delay of [undefined, 0, 0, 1, 2, 5]) {
          const n = `${how} ${taken.length} ${delay}`;
          let late: Promise<unknown> = Promise.resolve();
          const ending = client.transaction(async (tx) => {
            await context.note(tx, n);
            const waited = delay === undefined ? Promise.resolve() : sleep(delay);
            late = waited.then(() => enqueueIn(client, tx, [message(n)]));
            late.catch(() => undefined);
            if (how === "rollback") throw undone;
          });
          await ending.catch((error: unknown) => assert.equal(error, undone));
          const written = await late.then(
            () => true,
            // What was on its way when the transaction ended may fail by the words of the database.
            () => false,
          );
          if (written && how === "commit") taken.push(n);
        }
      }
      const consumer = await joined(context.store);
      assert.deepEqual(sorted(payloads(await consumer.drain())), sorted(taken));
    },
  },
  {
    role,
    name: "refuses an ended transaction while another one is open on its connection",
    needs: ["ownHandles"],
    async run(context) {
      await using client = await soleClient(context);
      for (const how of ["commit", "rollback"] as const) {
        const ended = await endedBy(client, how);
        const other = await begin(client);
        await enqueueIn(client, other.tx, [message(`before ${how}`)]);
        await assert.rejects(enqueueIn(client, ended, [message("late")]), refused);
        await enqueueIn(client, other.tx, [message(`after ${how}`)]);
        await other.commit();
      }
      const consumer = await joined(context.store);
      const expected = ["before commit", "after commit", "before rollback", "after rollback"];
      assert.deepEqual(payloads(await consumer.drain()), expected);
    },
  },
];

async function soleClient(context: StoreContext): Promise<SoleClient> {
  return (await context.soleClient?.()) ?? { ...context, [Symbol.asyncDispose]: () => Promise.resolve() };
}

/** A transaction that is kept beyond its end. */
async function endedBy(client: SoleClient, how: "commit" | "rollback"): Promise<AnyTx> {
  const transaction = await begin(client);
  await transaction[how]();
  return transaction.tx;
}
