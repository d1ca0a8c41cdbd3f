import { randomBytes } from "node:crypto";
import { MongoClient } from "mongodb";

export interface MongoDatabase extends AsyncDisposable {
  readonly client: MongoClient;
  readonly name: string;
  /** With the database in its path. */
  readonly url: string;
}

/** A database of its own on the server of `url`, dropped at the end. */
export async function mongoDatabase(url: string): Promise<MongoDatabase> {
  const name = `t_${randomBytes(6).toString("hex")}`;
  const own = new URL(url);
  own.pathname = `/${name}`;
  const client = await new MongoClient(own.href, { serverSelectionTimeoutMS: 10_000 }).connect();
  return {
    client,
    name,
    url: own.href,
    async [Symbol.asyncDispose]() {
      await client
        .db(name)
        .dropDatabase()
        .catch(() => undefined);
      await client.close();
    },
  };
}
