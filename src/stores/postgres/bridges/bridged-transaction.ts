import { TxboxError } from "../../../core/errors.ts";
import { notYours } from "../transaction-control.ts";
import { isGivenUp } from "../transaction-guard.ts";
import type { PostgresBridge } from "./bridge.ts";
import { lend } from "./lending.ts";
import { LentConnection } from "./lent-connection.ts";

/** The transactions of drivers under those that handlers were given. */
const under = new WeakMap<object, object>();

/** The driver's transaction under one of a library that `bridgedTransaction` opened. */
export function transactionUnder(tx: object): object | undefined {
  return under.get(tx);
}

/**
 * Runs `work` in a transaction of the library on the connection of a transaction of the driver. The driver begins and ends
 * it, with all that it does for one that times out or whose connection is lost; the library is told when it has been ended.
 */
export async function bridgedTransaction<Tx extends object, T>(
  bridge: PostgresBridge<Tx>,
  open: (run: (transaction: object) => Promise<void>) => Promise<void>,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  let result: { value: T } | undefined;
  let library: Promise<void> | undefined;
  const ended = Promise.withResolvers<void>();
  // There may be no code that waits for it: its rejection must not end the process.
  ended.promise.catch(() => undefined);

  const opened = open((transaction) => {
    const ready = Promise.withResolvers<void>();
    const lent = new LentConnection(transaction, { onCommit: () => (ready.resolve(), ended.promise) });

    async function run(tx: Tx): Promise<T> {
      if (!lent.begun) throw foreignConnection(bridge.library);
      under.set(tx, transaction);
      lent.inUse = true;
      try {
        result = { value: await work(tx) };
        return result.value;
      } catch (error) {
        const cause = causeOf(error, lent);
        // The library may wait for a query that hangs before it rolls back.
        ready.reject(cause);
        throw cause;
      } finally {
        lent.inUse = false;
      }
    }

    const over = lend(bridge.client, lent.connection, () => bridge.transaction(run, lent.connection));
    library = over.then(
      () => ready.reject(notYours("ROLLBACK")),
      (error: unknown) => ready.reject(causeOf(error, lent)),
    );
    return ready.promise;
  });
  opened.then(ended.resolve, ended.reject);
  await opened;
  // What it does after a commit takes nothing back.
  await library;
  return result!.value;
}

/** Libraries hide why the server gave up a transaction; whether to try again depends on it. */
function causeOf(error: unknown, { lost }: LentConnection): unknown {
  return lost === undefined || error instanceof TxboxError || isGivenUp(error) ? error : lost;
}

function foreignConnection(library: string): TxboxError {
  return new TxboxError("invalid_option", `${library} did not take its connection from the client of the store`, {
    field: "client",
    fix: `Give the store the very pool that ${library} was made with, not another one on the same database`,
  });
}
