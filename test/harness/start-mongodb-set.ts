import { MongoClient } from "mongodb";
import { until } from "./deadline.ts";
import { type MongodbServer, REPLICA_SET, startMongodb } from "./start-mongodb.ts";

export interface MongodbSet extends AsyncDisposable {
  readonly url: string;
  readonly members: readonly MongodbServer[];
  /** The member that takes writes; waits for an election. `not`: another one than this. */
  primary(options?: { not?: MongodbServer }): Promise<MongodbServer>;
  /** The others. */
  secondaries(): Promise<MongodbServer[]>;
  /** What one member has by itself, replicated or not. */
  directly<T>(member: MongodbServer, run: (client: MongoClient) => Promise<T>): Promise<T>;
  stop(): Promise<void>;
}

const ELECTION_TIMEOUT_MS = 2000;

/** Starts a replica set of three members, any of which can be killed or paused. It ends when this process ends. */
export async function startMongodbSet(): Promise<MongodbSet> {
  const members: MongodbServer[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(members.map((member) => member.stop()));
  };
  try {
    for (let i = 0; i < 3; i++) members.push(await startMongodb({ owned: true, member: true, cacheGb: 0.25 }));
    await initiate(members);
  } catch (error) {
    await stop();
    throw error;
  }
  const hosts = members.map(({ port }) => `127.0.0.1:${port}`).join(",");
  const set: MongodbSet = {
    url: `mongodb://${hosts}/?replicaSet=${REPLICA_SET}`,
    members,
    primary: ({ not } = {}) =>
      until(
        async () => {
          for (const member of members) if (member !== not && (await isPrimary(member))) return member;
          return false;
        },
        { what: "a primary", timeoutMs: 60_000, intervalMs: 50 },
      ),
    async secondaries() {
      const primary = await set.primary();
      return members.filter((member) => member !== primary);
    },
    directly,
    stop,
    [Symbol.asyncDispose]: stop,
  };
  await set.primary();
  return set;
}

async function initiate(members: readonly MongodbServer[]): Promise<void> {
  const config = {
    _id: REPLICA_SET,
    members: members.map(({ port }, _id) => ({ _id, host: `127.0.0.1:${port}` })),
    settings: { electionTimeoutMillis: ELECTION_TIMEOUT_MS, heartbeatIntervalMillis: 500 },
  };
  await directly(members[0]!, (client) => client.db("admin").command({ replSetInitiate: config }));
}

async function isPrimary(member: MongodbServer): Promise<boolean> {
  try {
    const hello = await directly(member, (client) => client.db("admin").command({ hello: 1 }));
    return hello["isWritablePrimary"] === true;
  } catch {
    return false;
  }
}

async function directly<T>({ port }: MongodbServer, run: (client: MongoClient) => Promise<T>): Promise<T> {
  const limits = { serverSelectionTimeoutMS: 1000, connectTimeoutMS: 1000, socketTimeoutMS: 2000 };
  const client = new MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`, limits);
  try {
    return await run(client);
  } finally {
    await client.close();
  }
}
