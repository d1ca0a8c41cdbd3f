import { AsyncLocalStorage } from "node:async_hooks";
import { hasMethods } from "../drivers/driver.ts";

interface Loan {
  readonly client: object;
  /** Taken at most once: later requests get a connection of the pool. */
  connection: object | undefined;
}

const loans = new AsyncLocalStorage<Loan>();
const lenders = new WeakSet<object>();

/** The first request to `client` for a connection within `start` gets this one. Call `prepareLending` before. */
export async function lend<T>(client: object, connection: object, start: () => Promise<T>): Promise<T> {
  const loan: Loan = { client, connection };
  try {
    return await loans.run(loan, start);
  } finally {
    loan.connection = undefined;
  }
}

type Method = (...args: unknown[]) => unknown;

/**
 * A library that the user built takes its connections from the client that it was built with. So the client has to hand
 * out the connection that the receipt was written on: there is no other way to use the library as the user set it up.
 */
export function prepareLending(client: object): void {
  if (lenders.has(client)) return;
  lenders.add(client);
  // postgres.js and PGlite open transactions by themselves, and theirs are `begin` and `transaction` of the connection.
  const name = hasMethods(client, "begin") ? "begin" : hasMethods(client, "exec") ? "transaction" : "connect";
  const original = (Reflect.get(client, name) as Method).bind(client);
  const lent = (args: unknown[], connection: object): unknown =>
    name === "connect" ? handOver(connection, args[0]) : (Reflect.get(connection, name) as Method)(...args);
  Object.defineProperty(client, name, {
    configurable: true,
    writable: true,
    value: (...args: unknown[]) => {
      const connection = take(client);
      return connection === undefined ? original(...args) : lent(args, connection);
    },
  });
}

function take(client: object): object | undefined {
  const loan = loans.getStore();
  if (loan?.client !== client) return undefined;
  const { connection } = loan;
  loan.connection = undefined;
  return connection;
}

/** As a pool of node-postgres does: by callback, or as a promise. */
function handOver(connection: object, callback: unknown): unknown {
  if (typeof callback !== "function") return Promise.resolve(connection);
  process.nextTick(callback, undefined, connection, () => undefined);
  return undefined;
}
