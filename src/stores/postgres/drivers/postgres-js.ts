import type { PostgresJs, PostgresJsTx } from "./postgres-client.ts";
import { isConnectionLoss } from "./classify-error.ts";
import { guardTransaction, isGivenUp } from "./transaction-guard.ts";

/** How long a connection that the server gave up may take to be seen as closed. */
const CLOSING_MS = 1000;
const STEP_MS = 20;

/**
 * `sql.begin` without two dangers of postgres.js 3.4 when a connection dies in a transaction: the ROLLBACK or COMMIT
 * it then sends either ends the process, or runs on the connection's successor, in somebody else's transaction.
 */
export function beginPostgresJs<T>(
  client: PostgresJs,
  run: (tx: PostgresJsTx, raw: PostgresJsTx) => Promise<T>,
): Promise<T> {
  const gaveUp = Promise.withResolvers<never>();
  const connection: { lost: boolean; close?: () => void } = { lost: false };

  const begun = client.begin(async (raw: PostgresJsTx) => {
    const guard = guardTransaction(raw);
    connection.close = () => guard.close();
    const outcome = await run(guard.tx, raw).then(
      (value) => ({ value }),
      (error: unknown) => ({ error }),
    );
    guard.close();
    // ROLLBACK would wait for the query of a handler that was given up.
    if ("error" in outcome && isGivenUp(outcome.error)) await guard.cancel();
    if ("error" in outcome && isConnectionLoss(outcome.error)) {
      gaveUp.reject(outcome.error);
      await waitUntilLost(connection);
    }
    // `begin` has rejected already; returning would only make it write.
    if (connection.lost) return new Promise<never>(() => undefined);
    if ("error" in outcome) throw outcome.error;
    return outcome.value;
  }) as Promise<T>;
  begun.catch(() => {
    connection.lost = true;
    connection.close?.();
  });
  return Promise.race([begun, gaveUp.promise]);
}

async function waitUntilLost(connection: { lost: boolean }): Promise<void> {
  for (let waited = 0; !connection.lost && waited < CLOSING_MS; waited += STEP_MS) {
    await new Promise((resolve) => setTimeout(resolve, STEP_MS));
  }
}
