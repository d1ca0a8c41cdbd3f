import { AsyncLocalStorage } from "node:async_hooks";
import { TxboxError } from "../../../core/errors.ts";
import { guardTransaction } from "../transaction-guard.ts";
import { hasMethods, notATransaction } from "./driver.ts";
import type { PostgresDriver, Row, ScriptRunner } from "./driver.ts";

/** PGlite: inside `db.transaction(async (tx) => …)`. */
export interface PgliteTx {
  query(text: string, params?: unknown[], options?: object): Promise<unknown>;
  exec(text: string): Promise<unknown>;
  rollback(): Promise<void>;
}

/** PGlite: `new PGlite()`. */
export interface Pglite {
  query(text: string, params?: unknown[], options?: object): Promise<unknown>;
  exec(text: string): Promise<unknown>;
  transaction(run: (tx: PgliteTx) => Promise<unknown>): Promise<unknown>;
  readonly waitReady: Promise<void>;
}

export const pglite: PostgresDriver<Pglite, PgliteTx> = {
  wants: "a PGlite instance",
  isClient: (value) => hasMethods(value, "exec", "query", "transaction"),
  open(client) {
    refuseSelfWait(client);
    return {
      ...runner(client),
      single: true,
      transaction: (run) => begin(client, (tx, raw) => run(tx, runner(raw))),
    };
  },
  runnerOf(value) {
    if (!hasMethods(value, "exec", "query")) return undefined;
    if ("closed" in value && value.closed === true) {
      throw notATransaction("a PGlite transaction that has ended", "Await enqueue inside db.transaction(…)");
    }
    if (hasMethods(value, "rollback")) return { ...runner(value as PgliteTx), mayAutocommit: false };
    throw notATransaction("the PGlite instance", "Pass the `tx` of db.transaction(async (tx) => …)");
  },
};

// PGlite copies the parsers it is given by their own keys, so every type that our statements return is named by its oid:
// bool bytea char name int8 int2 int4 text oid json float4 float8 bpchar varchar date timestamp timestamptz numeric uuid
// jsonb pg_snapshot xid8, then the arrays of bool bytea int2 int4 text varchar int8 float8 oid timestamptz json jsonb xid8.
const PGLITE_TYPES = [
  16, 17, 18, 19, 20, 21, 23, 25, 26, 114, 700, 701, 1042, 1043, 1082, 1114, 1184, 1700, 2950, 3802, 5038, 5069, 1000,
  1001, 1005, 1007, 1009, 1015, 1016, 1022, 1028, 1185, 199, 3807, 271,
];
const textParsers: object = Object.fromEntries(PGLITE_TYPES.map((oid) => [oid, (value: string) => value]));

function runner(client: PgliteTx | Pglite): ScriptRunner {
  return {
    sendsText: false,
    async query(text, params = []) {
      const result = await client.query(text, [...params], { rowMode: "array", parsers: textParsers });
      return (result as { rows: Row[] }).rows;
    },
    async affect(text, params) {
      const result = await client.query(text, [...params]);
      return (result as { affectedRows?: number }).affectedRows ?? 0;
    },
    async exec(script) {
      await client.exec(script);
    },
  };
}

interface Inside {
  /** Undefined when the transaction is over, because what a handler leaves running keeps its context. */
  client: Pglite | undefined;
}

const inside = new AsyncLocalStorage<Inside>();

function begin<T>(client: Pglite, run: (tx: PgliteTx, raw: PgliteTx) => Promise<T>): Promise<T> {
  const context: Inside = { client };
  const running = client.transaction((raw: PgliteTx) => {
    const guard = guardTransaction(raw);
    return inside.run(context, () => run(guard.tx, raw)).finally(() => guard.close());
  }) as Promise<T>;
  return running.finally(() => (context.client = undefined));
}

const refusing = new WeakSet<Pglite>();

/** PGlite has one connection: inside a transaction, `db.query` would wait for that transaction for ever. */
function refuseSelfWait(client: Pglite): void {
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
