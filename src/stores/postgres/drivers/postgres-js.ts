import { isConnectionLoss } from "../classify-error.ts";
import { guardTransaction, isGivenUp } from "../transaction-guard.ts";
import { hasMethods, notATransaction } from "./driver.ts";
import type { PostgresDriver, ScriptRunner } from "./driver.ts";

/** postgres.js: inside `sql.begin(async (tx) => …)`. */
export interface PostgresJsTx {
  unsafe(text: string, params?: never[], options?: object): unknown;
  savepoint: unknown;
}

/** postgres.js: `postgres(url)`. */
export interface PostgresJs {
  unsafe(text: string, params?: never[], options?: object): unknown;
  begin(run: (tx: PostgresJsTx) => unknown): Promise<unknown>;
}

export const postgresJs: PostgresDriver<PostgresJs, PostgresJsTx> = {
  wants: "a postgres.js instance",
  isClient: (value) => hasMethods(value, "unsafe", "begin"),
  open: (client) => ({
    ...runner(client),
    single: false,
    transaction: (run) => begin(client, (tx, raw) => run(tx, runner(raw))),
  }),
  runnerOf(value) {
    if (!hasMethods(value, "unsafe")) return undefined;
    if ("savepoint" in value) return { ...runner(value as PostgresJsTx), mayAutocommit: false };
    throw notATransaction("the postgres.js instance", "Pass the `tx` of sql.begin(async (tx) => …)");
  },
};

function runner(sql: PostgresJsTx | PostgresJs): ScriptRunner {
  return {
    sendsText: false,
    async query(text, params = []) {
      const pending = sql.unsafe(text, params as never[], { prepare: false }) as {
        raw(): Promise<(Buffer | null)[][]>;
      };
      const rows = await pending.raw();
      return Array.from(rows, (row) => row.map((value) => (value === null ? null : value.toString())));
    },
    async affect(text, params) {
      const result = await (sql.unsafe(text, params as never[], { prepare: false }) as Promise<{
        count: number | null;
      }>);
      return result.count ?? 0;
    },
    async exec(script) {
      await (sql.unsafe(script) as { simple(): Promise<unknown> }).simple();
    },
  };
}

/** How long a connection that the server gave up may take to be seen as closed. */
const CLOSING_MS = 1000;
const STEP_MS = 20;

/**
 * `sql.begin` without two dangers of postgres.js 3.4 when a connection breaks in a transaction: the ROLLBACK or COMMIT
 * that it then sends ends the process, or runs on the next connection, in another caller's transaction.
 */
function begin<T>(client: PostgresJs, run: (tx: PostgresJsTx, raw: PostgresJsTx) => Promise<T>): Promise<T> {
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
