import type { HealthCheck, Symptom } from "../../core/contracts.ts";
import { deadLetterCommands } from "../../core/pasted.ts";
import { formatMs } from "../../core/plain-words.ts";
import { describeError } from "../../core/errors.ts";
import { shownValue } from "../../core/value-kind.ts";
import { clockSkew } from "../shared/clock-skew.ts";
import { replicaSetChecks } from "./doctor-replica-set.ts";
import type { Database, Document, RawDb } from "./mongodb-client.ts";
import { indexesOf } from "./mongodb-indexes.ts";
import type { Names, Tables } from "./mongodb-names.ts";

export interface DoctorOptions {
  database: Database;
  names: Names;
  tables: Tables;
  transactions: boolean;
  retentionMs: number;
}

const LONG_MS = 30_000;
const VERY_LONG_MS = 3_600_000;
const MANY_ATTEMPTS = 5;

/** What can be wrong with MongoDB. Nothing of it is written to. */
export function mongoChecks(options: DoctorOptions): readonly HealthCheck[] {
  const { database } = options;
  const check = (name: string, looksAt: string, run: () => Promise<Symptom[]>): HealthCheck => {
    return { name, looksAt, needs: "server", run };
  };
  return [
    check("clock_skew", "the clock of this process against the server's", () =>
      clockSkew(async () => ((await database.db.command({ hello: 1 }))["localTime"] as Date).getTime()),
    ),
    ...replicaSetChecks(options),
    check("client_options", "write concern and read preference of the client", async () => clientOptions(database)),
    check("long_transactions", "transactions that have been open for half a minute", () => longTransactions(database)),
    check("ttl", "whether the server deletes what is past its time", () => timeToLive(options)),
    check("wake_up", "whether change streams can be opened", () => wakeUp(options)),
    {
      ...check("stuck_keys", "keys that fail again and again, or wait for a dead letter", () => stuckKeys(options)),
      needs: "tables",
    },
  ];
}

/** Commands of the whole server. */
export function adminOf({ client }: Database): RawDb {
  return client.db("admin") as unknown as RawDb;
}

/** txbox has its own for its collections; transactions of the application have those of the client. */
function clientOptions({ client }: Database): Symptom[] {
  const { writeConcern, readPreference } = client as {
    writeConcern?: { w?: unknown };
    readPreference?: { mode?: unknown };
  };
  const symptoms: Symptom[] = [];
  const w = writeConcern?.w;
  if (w !== undefined && w !== "majority") {
    symptoms.push({
      severity: "warning",
      finding: `The client's write concern is w: ${shownValue(w)}`,
      consequence: "A failover may take back a transaction of yours, with its messages, after its commit was answered",
      fix: "Leave w out of the URL and the options (the server's default is majority), or set w=majority",
    });
  }
  const mode = readPreference?.mode;
  if (mode !== undefined && mode !== "primary") {
    symptoms.push({
      severity: "warning",
      finding: `The client's read preference is ${shownValue(mode)}`,
      consequence: "Transactions need the primary: yours fail, unless they are begun with readPreference primary",
      fix: "Leave readPreference out of the URL and the options, and give it to single queries",
    });
  }
  return symptoms;
}

async function longTransactions(database: Database): Promise<Symptom[]> {
  const answer = await adminOf(database).command({
    aggregate: 1,
    pipeline: [
      { $currentOp: { allUsers: true, idleSessions: true } },
      { $match: { "transaction.timeOpenMicros": { $gt: LONG_MS * 1000 } } },
      { $sort: { "transaction.timeOpenMicros": -1 } },
      { $limit: 5 },
    ],
    cursor: {},
  });
  const rows = (answer["cursor"] as { firstBatch: Document[] }).firstBatch;
  return rows.map((row) => {
    const ms = Number((row["transaction"] as Document)["timeOpenMicros"]) / 1000;
    const { id } = (row["lsid"] ?? {}) as { id?: { toString(encoding?: string): string } };
    return {
      severity: ms > VERY_LONG_MS ? "error" : "warning",
      finding: `A transaction of ${shownValue(row["appName"] ?? row["client"])} is open for ${formatMs(ms)}`,
      consequence: "Messages in it wait, and so does every writer of its keys. The cache of the server fills up",
      fix: `End its session in mongosh: db.adminCommand({ killSessions: [{ id: UUID("${id?.toString("hex") ?? "…"}") }] }); transactionLifetimeLimitSeconds is the limit for all`,
    };
  });
}

async function timeToLive({ database, names, tables, retentionMs }: DoctorOptions): Promise<Symptom[]> {
  const symptoms: Symptom[] = [];
  const { ttlMonitorEnabled } = await adminOf(database).command({ getParameter: 1, ttlMonitorEnabled: 1 });
  if (ttlMonitorEnabled === false) {
    symptoms.push({
      severity: "error",
      finding: "The server's TTL monitor is off",
      consequence: "What is done is never deleted: outbox and inbox grow without end",
      fix: "db.adminCommand({ setParameter: 1, ttlMonitorEnabled: true })",
    });
  }
  const wanted = indexesOf(names, { retentionMs })
    .get(names.outbox)
    ?.find(({ name }) => name === "txbox_done");
  const indexes = await tables.outbox.raw.indexes().catch((): Document[] => []);
  const found = indexes.find(({ name }) => name === "txbox_done")?.["expireAfterSeconds"];
  if (typeof found === "number" && found !== wanted?.expireAfterSeconds) {
    symptoms.push({
      severity: "info",
      finding: `The index txbox_done keeps documents for ${formatMs(found * 1000)}, retentionMs of this store says ${formatMs(retentionMs)}`,
      consequence: "The index decides",
      fix: `db.runCommand({ collMod: ${JSON.stringify(names.outbox)}, index: { name: "txbox_done", expireAfterSeconds: ${wanted?.expireAfterSeconds} } }), or correct retentionMs`,
    });
  }
  return symptoms;
}

/** Opens one and closes it: the only way to know that the rights are there. */
async function wakeUp({ database, tables }: DoctorOptions): Promise<Symptom[]> {
  const { setName } = await database.db.command({ hello: 1 });
  if (typeof setName !== "string") return [];
  const stream = tables.outbox.raw.watch([{ $match: { operationType: "none" } }], {
    maxAwaitTimeMS: 1,
    readConcern: { level: "majority" },
  });
  try {
    await stream.tryNext();
    return [];
  } catch (error) {
    return [
      {
        severity: "warning",
        finding: `A change stream cannot be opened: ${describeError(error, 200)}`,
        consequence: 'Wake-ups and relays with source: "stream" do not work: messages are found by polling',
        fix: "Grant the role find and changeStream on the outbox: the built-in role read has both",
      },
    ];
  } finally {
    await stream.close().catch(() => undefined);
  }
}

async function stuckKeys({ tables }: DoctorOptions): Promise<Symptom[]> {
  const failing = await tables.outbox.find(
    { waits: "parked", attempts: { $gte: MANY_ATTEMPTS } },
    { limit: 3, hint: "txbox_parked", projection: { payload: 0 } },
  );
  const held = await tables.dead.find(
    { blocks: true, state: "dead" },
    { limit: 3, hint: "txbox_blocks", projection: { payload: 0 } },
  );
  const errorOf = ({ last_error }: Document): string =>
    typeof last_error === "string" ? last_error.slice(0, 200) : "";
  return [
    ...failing.map((row): Symptom => ({
      severity: "warning",
      finding: `Key ${String(row["key"])} of ${String(row["stream"])} has failed ${String(row["attempts"])} times at relay ${String(row["relay"])}: ${errorOf(row)}`,
      consequence: "What follows in the key waits behind it",
      fix: "Mend the cause in the error. The relay tries again by itself; after maxAttempts it is a dead letter",
    })),
    ...held.map((row): Symptom => {
      const id = String(row["message_id"] ?? row["_id"]);
      const relay = String(row["relay"]);
      return {
        severity: "warning",
        finding: `Key ${String(row["key"])} of ${String(row["stream"])} stands still at relay ${relay} behind a dead letter: ${errorOf(row)}`,
        consequence: "Nothing of this key is published until the dead letter is requeued or discarded",
        fix: deadLetterCommands(id, relay),
      };
    }),
  ];
}
