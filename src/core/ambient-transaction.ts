import { AsyncLocalStorage } from "node:async_hooks";
import { TxboxError } from "./errors.ts";

interface Ambient {
  /** Whose transaction it is: of two databases, each has its own. */
  readonly owner: object;
  /** Undefined when `run` is over, because what it leaves running keeps its context. */
  tx: unknown;
  readonly outer: Ambient | undefined;
}

const current = new AsyncLocalStorage<Ambient>();

export async function runWithTransaction<T>(owner: object, tx: unknown, run: () => Promise<T>): Promise<T> {
  const ambient: Ambient = { owner, tx, outer: current.getStore() };
  try {
    return await current.run(ambient, run);
  } finally {
    ambient.tx = undefined;
  }
}

/** The transaction of the innermost `withTransaction` of this owner. */
export function ambientTransaction(owner: object): unknown {
  let ambient = current.getStore();
  while (ambient !== undefined && ambient.owner !== owner) ambient = ambient.outer;
  if (ambient?.tx !== undefined) return ambient.tx;
  const message =
    ambient === undefined
      ? "enqueueHere was called outside of withTransaction"
      : "enqueueHere was called after the end of its withTransaction";
  throw new TxboxError("no_transaction", message, {
    field: "tx",
    fix: "Call it within outbox.withTransaction(tx, async () => …) and await it there, or pass the transaction: enqueue(tx, message)",
  });
}
