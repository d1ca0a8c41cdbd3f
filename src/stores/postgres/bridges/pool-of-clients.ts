import type { PgPool, PgPoolClient } from "../drivers/node-postgres.ts";

type Client = Omit<PgPoolClient, "release">;

export interface ClientSource {
  acquire(): Promise<unknown>;
  release(client: object): unknown;
  /** For one that must not be used again. */
  destroy(client: object): unknown;
}

/** The pool of a library that keeps clients of node-postgres in a pool of its own make. */
export function poolOfClients(source: ClientSource): PgPool {
  const connect = async (): Promise<PgPoolClient> => {
    const client = (await source.acquire()) as Client;
    const release = (broken?: Error | boolean): void => {
      // The caller does not wait for it, and what cannot be closed is closed already.
      Promise.resolve(broken ? source.destroy(client) : source.release(client)).catch(() => undefined);
    };
    return new Proxy(client, {
      get: (target, name) => (name === "release" ? release : methodOf(target, name)),
    }) as PgPoolClient;
  };
  return {
    totalCount: 0,
    connect,
    async query(config) {
      const client = await connect();
      try {
        return await client.query(config);
      } finally {
        client.release();
      }
    },
  };
}

function methodOf(target: object, name: string | symbol): unknown {
  const value: unknown = Reflect.get(target, name);
  return typeof value === "function" ? value.bind(target) : value;
}
