import { TxboxError } from "../../../core/errors.ts";
import { valueKind } from "../../../core/value-kind.ts";
import { hasMethods, notATransaction } from "../drivers/driver.ts";
import { DRIVERS } from "../drivers/index.ts";
import type { PgClient } from "../drivers/node-postgres.ts";
import type { PostgresBridge } from "./bridge.ts";

/** Drizzle on node-postgres, postgres.js or PGlite: what `drizzle(…)` returns. */
export interface DrizzleDatabase<Tx> {
  /** Always there; types such as `NodePgDatabase<typeof schema>` leave it out. */
  readonly $client?: object;
  readonly _: object;
  transaction(run: (tx: Tx) => Promise<unknown>): Promise<unknown>;
}

/** `enqueue` takes the `tx` of `db.transaction(async (tx) => …)`, and handlers get one, made with everything that `db` has. */
export function fromDrizzle<Tx extends object>(db: DrizzleDatabase<Tx>): PostgresBridge<Tx> {
  const client: unknown = hasMethods(db, "transaction", "select") ? db.$client : undefined;
  if (!isObject(client) || !DRIVERS.some((driver) => driver.isClient(client))) {
    const got = client === undefined ? valueKind(db) : `Drizzle on ${valueKind(client)}`;
    throw new TxboxError("invalid_option", `fromDrizzle needs Drizzle on PostgreSQL, got ${got}`, {
      field: "db",
      fix: "Pass drizzle({ client: new pg.Pool(…) }), or one on postgres.js or PGlite",
    });
  }
  noteEnds(db);
  return {
    library: "Drizzle",
    client: client as PostgresBridge["client"],
    transaction: <T>(run: (tx: Tx) => Promise<T>) => db.transaction(run) as Promise<T>,
    statementsOf(value) {
      if (!hasMethods(value, "select", "insert", "transaction") || !("_" in value)) return undefined;
      const session = hasMethods(value, "rollback") ? sessionOf(value) : undefined;
      if (!isObject(session?.client)) {
        throw notATransaction("the Drizzle database", "Pass the `tx` of db.transaction(async (tx) => …)");
      }
      if (ended.has(value) || ended.has(session)) {
        const fix = "Call enqueue inside db.transaction(async (tx) => …), and await it there";
        throw notATransaction("a Drizzle transaction that has ended", fix);
      }
      return { driver: session.client as PgClient };
    },
  };
}

interface DrizzleSession {
  readonly client?: unknown;
  transaction?: unknown;
}

function sessionOf(value: object): DrizzleSession | undefined {
  const { session } = value as { session?: unknown };
  return isObject(session) ? session : undefined;
}

/** Transactions that have ended, and their sessions: each has one of its own, which nested ones share. */
const ended = new WeakSet<object>();
const watched = new WeakSet<object>();

/**
 * A transaction of Drizzle does not know that it has ended, and its connection may serve another one by then: a message
 * would be written in that. Other instances of Drizzle on the same pool have sessions of the same class.
 */
function noteEnds(db: object): void {
  const session = sessionOf(db);
  if (session === undefined || !hasMethods(session, "transaction")) return;
  const made: unknown = Object.getPrototypeOf(session);
  noteEndsBy(isObject(made) && Object.hasOwn(made, "transaction") ? made : session);
}

type Run = (tx: object) => unknown;

/** Of what `transaction` of a session gives, and then of what `transaction` of that gives. */
function noteEndsBy(owner: object): void {
  if (watched.has(owner)) return;
  watched.add(owner);
  const begin = Reflect.get(owner, "transaction") as (run: Run, ...rest: unknown[]) => unknown;
  const value = function (this: object, run: Run, ...rest: unknown[]): unknown {
    const noted = async (tx: object): Promise<unknown> => {
      if (hasMethods(tx, "transaction")) noteEndsBy(tx);
      try {
        return await run(tx);
      } finally {
        ended.add(tx);
        const own = sessionOf(tx);
        // A nested transaction has the session of the one around it.
        if (own !== undefined && sessionOf(this) !== own && this !== own) ended.add(own);
      }
    };
    return begin.call(this, noted, ...rest);
  };
  Object.defineProperty(owner, "transaction", { configurable: true, writable: true, value });
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}
