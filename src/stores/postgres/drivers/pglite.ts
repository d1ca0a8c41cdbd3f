import { AsyncLocalStorage } from "node:async_hooks";
import { TxboxError } from "../../core/errors.ts";
import type { Pglite, PgliteTx } from "./postgres-client.ts";
import { guardTransaction } from "./transaction-guard.ts";

interface Inside {
  /** Undefined when the transaction is over, because what a handler leaves running keeps its context. */
  client: Pglite | undefined;
}

const inside = new AsyncLocalStorage<Inside>();

export function beginPglite<T>(client: Pglite, run: (tx: PgliteTx, raw: PgliteTx) => Promise<T>): Promise<T> {
  const context: Inside = { client };
  const running = client.transaction((raw: PgliteTx) => {
    const guard = guardTransaction(raw);
    return inside.run(context, () => run(guard.tx, raw)).finally(() => guard.close());
  }) as Promise<T>;
  return running.finally(() => (context.client = undefined));
}

const refusing = new WeakSet<Pglite>();

/** PGlite has one connection: inside a transaction, `db.query` would wait for that transaction for ever. */
export function refuseSelfWait(client: Pglite): void {
  if (refusing.has(client)) return;
  refusing.add(client);
  for (const method of ["query", "exec", "transaction"] as const) {
    const original = client[method].bind(client) as (...args: unknown[]) => Promise<unknown>;
    Object.defineProperty(client, method, {
      configurable: true,
      writable: true,
      value: (...args: unknown[]) =>
        inside.getStore()?.client === client ? Promise.reject(wouldWaitForItself(method)) : original(...args),
    });
  }
}

function wouldWaitForItself(method: string): TxboxError {
  return new TxboxError("no_transaction", `A handler called db.${method}() on PGlite, which would wait for itself`, {
    field: "tx",
    fix: "Use the transaction that the handler was given: tx.query()",
  });
}
