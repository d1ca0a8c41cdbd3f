import { safeListener } from "../../core/channels.ts";
import { systemClock } from "../../core/clock.ts";
import type { Clock, JoinOptions, Ledger, SourceEvent, Store, Writer } from "../../core/contracts.ts";
import { notifyEnqueued } from "../../core/enqueue-signal.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { LaneSession } from "../../lanes/lane-session.ts";
import { toldMaintenance } from "../shared/told-maintenance.ts";
import { classify } from "./classify-error.ts";
import { mongoChecks } from "./doctor.ts";
import { createAdmin } from "./mongodb-admin.ts";
import type { MongoClientLike, MongoSession as DriverSession, MongoTx, SessionOf } from "./mongodb-client.ts";
import { databaseOf, WITHOUT_TRANSACTION } from "./mongodb-client.ts";
import { noArchive, optionOfRelay, schemaMissing } from "./mongodb-errors.ts";
import { MongoLanePort } from "./mongodb-lane-port.ts";
import { createHistory } from "./mongodb-history.ts";
import { createLedger } from "./mongodb-ledger.ts";
import { createMaintenance } from "./mongodb-maintenance.ts";
import { createMigrator } from "./mongodb-migrator.ts";
import { mongoNames, tablesOf } from "./mongodb-names.ts";
import { createWriter } from "./mongodb-writer.ts";
import { requireReplicaSet } from "./snapshot-look.ts";
import type { StreamSettings } from "./stream-source.ts";
import { startWakeUp, type WakeUp, type WakeUpOptions } from "./wake-up.ts";

export interface MongoStoreOptions<Client extends MongoClientLike = MongoClientLike> {
  /** Your own MongoClient; with mongoose, `mongoose.connection.getClient()`. */
  client: Client;
  /** Default: the database of the client's URL. */
  database?: string;
  /** Default "outbox"; dead letters, relays and sequences are kept in collections named after it. */
  collection?: string;
  /** Default "inbox". */
  inboxCollection?: string;
  /** False for a standalone server: data first, then the message with an id made of it. Default true. */
  transactions?: boolean;
  /** What is done is kept this long. Default: seven days. Takes effect when the indexes are made. */
  retentionMs?: number;
  /** Receipts are kept this long; older messages are refused by the inbox. Default: 14 days. */
  receiptRetentionMs?: number;
  clock?: Clock;
}

/** Handlers get the driver's own session, `Tx`, with a transaction open; enqueueing takes the session of any client. */
export interface MongoStore<Tx = DriverSession> extends Omit<Store<Tx>, "writer"> {
  readonly writer: Writer<MongoTx>;
  /** Wakes relays on this store by a change stream; they go on by polling when it ends. Close it before the client. */
  wakeUp(options?: WakeUpOptions): WakeUp;
}

const DAY_MS = 86_400_000;
/** A relay waits at least this long for an answer of the database. */
const MIN_ANSWER_MS = 5000;
const KNOWN = [
  "client",
  "database",
  "collection",
  "inboxCollection",
  "transactions",
  "retentionMs",
  "receiptRetentionMs",
  "clock",
];

/** txbox on MongoDB 5 or later, through the client that the application already has. */
export function createMongoStore<Client extends MongoClientLike>(
  options: MongoStoreOptions<Client>,
): MongoStore<SessionOf<Client>> {
  const of = "createMongoStore";
  if (Object.hasOwn(options, "archive")) throw noArchive();
  for (const moved of ["source", "onEvent"]) if (Object.hasOwn(options, moved)) throw optionOfRelay(moved);
  rejectUnknownOptions(of, options, KNOWN);
  const { collection = "outbox", inboxCollection = "inbox", transactions = true, clock = systemClock } = options;
  const { retentionMs = 7 * DAY_MS, receiptRetentionMs = 14 * DAY_MS } = options;
  requireInteger(of, "retentionMs", retentionMs, 1000);
  requireInteger(of, "receiptRetentionMs", receiptRetentionMs, DAY_MS);
  const database = databaseOf(options.client, options.database);
  const names = mongoNames(collection, inboxCollection);
  const tables = tablesOf(database, names);
  const { client } = options;
  let schema: Promise<void> | undefined;

  async function requireSchema(): Promise<void> {
    schema ??= tables.migrations.findOne({}).then((version) => {
      if (version === null) throw schemaMissing(names.outbox);
    });
    try {
      await schema;
    } catch (error) {
      schema = undefined;
      throw error;
    }
  }

  const migrator = createMigrator({ database, names, retentionMs });

  /** Every start of a relay begins with it. */
  async function check(): Promise<void> {
    try {
      await migrator.check();
    } catch (error) {
      // The driver never again uses a client whose first connection failed, unless it is told to connect.
      if ((error as Error | undefined)?.name !== "MongoTopologyClosedError" || client.connect === undefined)
        throw error;
      await client.connect();
      await migrator.check();
    }
  }

  const streamFor = ({ onSourceEvent = () => undefined, onNews = () => undefined }: JoinOptions): StreamSettings => {
    const tell = safeListener("onSourceEvent", onSourceEvent);
    const onEvent = (event: SourceEvent): void => tell(event, event.type);
    return { database, collection: names.outbox, onEvent, wake: onNews };
  };

  const store: MongoStore<SessionOf<Client>> = {
    name: "mongodb",
    capabilities: { sharedRelays: true, transactions, namedRelays: false, streams: true },
    writer: createWriter({ tables, transactions, requireSchema }),
    queue: {
      async join(join) {
        const deadlineMs = Math.max(join.leaseMs, MIN_ANSWER_MS);
        const options = { tables: tablesOf(database, names, deadlineMs), join, clock, deadlineMs };
        const streams = join.source === "stream";
        if (streams) await requireReplicaSet(database);
        const port = new MongoLanePort({ ...options, stream: streams ? streamFor(join) : undefined });
        const session = new LaneSession(port, join, clock);
        await session.join();
        return session;
      },
    },
    ledger: createLedger({ client, tables, transactions, receiptRetentionMs }) as Ledger<unknown> as Ledger<
      SessionOf<Client>
    >,
    migrator: { ...migrator, check },
    maintenance: toldMaintenance("mongodb", createMaintenance({ tables })),
    admin: createAdmin({ client, database, tables, transactions, receiptRetentionMs }),
    checks: mongoChecks({ database, names, tables, transactions, retentionMs }),
    history: createHistory(tablesOf(database, names, MIN_ANSWER_MS)),
    classify,
    // Only the writer ever sees it.
    ...(transactions ? {} : { withoutTransaction: WITHOUT_TRANSACTION as never }),
    wakeUp: (given = {}) => startWakeUp(tables.outbox, clock, () => notifyEnqueued(store), given),
  };
  return store;
}
