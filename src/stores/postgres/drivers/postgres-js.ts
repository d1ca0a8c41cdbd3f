import { isConnectionLoss } from "../classify-error.ts";
import { guardTransaction, isGivenUp } from "../transaction-guard.ts";
import { hasMethods, notATransaction } from "./driver.ts";
import type { PostgresDriver, ScriptRunner } from "./driver.ts";
import { isHandle, noteEnds, requireOpenHandle, sendWithin, type PostgresJsQuery } from "./postgres-js-scopes.ts";

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
  isClient: (value) => hasMethods(value, "begin", "PostgresError") && isHandle(value),
  open(client) {
    noteEnds(client);
    return {
      ...runner(client),
      single: false,
      transaction: (run) => begin(client, (tx, raw) => run(tx, runner(raw))),
    };
  },
  runnerOf(value) {
    if (!isHandle(value)) return undefined;
    if ("savepoint" in value) {
      requireOpenHandle(value);
      return { ...runner(value, (query) => sendWithin(value, query)), mayAutocommit: false };
    }
    const got = "release" in value ? "a reserved connection of postgres.js" : "the postgres.js instance";
    throw notATransaction(got, "Pass the `tx` of sql.begin(async (tx) => …)");
  },
};

interface Pending extends PostgresJsQuery {
  raw(): Pending;
  simple(): Pending;
}

type Send = (query: PostgresJsQuery) => Promise<unknown>;

function runner(sql: PostgresJsTx | PostgresJs, send: Send = (query) => query): ScriptRunner {
  const pending = (text: string, params: readonly unknown[]): Pending =>
    sql.unsafe(text, params as never[], { prepare: false }) as Pending;
  return {
    sendsText: false,
    async query(text, params = []) {
      const rows = (await send(pending(text, params).raw())) as (Buffer | null)[][];
      return Array.from(rows, (row) => row.map((value) => (value === null ? null : value.toString())));
    },
    async affect(text, params) {
      const result = (await send(pending(text, params))) as { count: number | null };
      return result.count ?? 0;
    },
    async exec(script) {
      await send((sql.unsafe(script) as Pending).simple());
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
