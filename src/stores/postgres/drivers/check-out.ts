import type { PgPool, PgPoolClient } from "./node-postgres.ts";

/**
 * A connection that breaks while it has no error listener ends the process, and the pool removes its listener when it
 * hands one out. With a callback we listen in the same moment, with a promise a moment later.
 */
export function checkOut(pool: PgPool, onError: (error?: Error) => void): Promise<PgPoolClient> {
  return new Promise((resolve, reject) => {
    const taken = (error: unknown, client?: PgPoolClient): void => {
      if (client === undefined) return reject(error);
      client.on("error", onError);
      resolve(client);
    };
    const returned = (pool as { connect(callback: typeof taken): unknown }).connect(taken);
    // A pool of another make may know only promises.
    if (returned instanceof Promise) returned.then((client: PgPoolClient) => taken(undefined, client), reject);
  });
}
