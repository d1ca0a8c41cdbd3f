import { systemClock } from "../../core/clock.ts";
import type { Clock, Ledger, SourceEvent, Store, Writer } from "../../core/contracts.ts";
import { LaneSession } from "../../lanes/lane-session.ts";
import { TxboxError } from "../../core/errors.ts";
import { safeListener } from "../../core/channels.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../../core/options.ts";
import type { Message } from "../../core/message.ts";
import type { SqlTransaction } from "../../core/sql-transaction.ts";
import { toldMaintenance } from "../shared/told-maintenance.ts";
import { classify } from "./classify-error.ts";
import { postgresChecks } from "./doctor.ts";
import { readLog, type LogQuery } from "./read-log.ts";
import { PlannedTransactions } from "./planned-transactions.ts";
import { createAdmin } from "./postgres-admin.ts";
import type {
  Database,
  PostgresBridge,
  PostgresClient,
  PostgresTx,
  TakenBy,
  TransactionOf,
} from "./postgres-client.ts";
import { bridgeOf, databaseOf } from "./postgres-client.ts";
import { sturdy, withDeadline } from "./postgres-errors.ts";
import type { GrantRoles } from "./postgres-grants.ts";
import { postgresGrants } from "./postgres-grants.ts";
import { createHistory } from "./postgres-history.ts";
import { createLedger } from "./postgres-ledger.ts";
import { createMaintenance } from "./postgres-maintenance.ts";
import { PostgresLanePort } from "./postgres-lane-port.ts";
import { createMigrator } from "./postgres-migrator.ts";
import { postgresNames } from "./postgres-names.ts";
import type { RebaseReport } from "./postgres-rebase.ts";
import { rebase } from "./postgres-rebase.ts";
import { requireArchive, type Archive } from "./segment-archive.ts";
import { createWal, type PostgresWal } from "./wal/wal-admin.ts";
import type { ReplicationClient } from "./wal/replication-connection.ts";
import type { ReplicationSettings } from "./wal/relay-slot.ts";
import { createWriter } from "./postgres-writer.ts";
import { withSafePath } from "./search-path.ts";

export interface PostgresStoreOptions<
  Client extends PostgresClient | PostgresBridge = PostgresClient | PostgresBridge,
> {
  /** Your own pg.Pool, postgres.js or PGlite instance, or your ORM: `fromDrizzle(db)`. */
  client: Client;
  /** Default "txbox". */
  schema?: string;
  /** Put before every table name. Default "". */
  tablePrefix?: string;
  /** A new log segment this often. Default: a day. */
  segmentMs?: number;
  /** Published messages are kept at least this long. Default: seven days. */
  retentionMs?: number;
  /** Messages are dropped after this time though a relay has not delivered them. Default: never. */
  abandonAfterMs?: number;
  /** Receipts are kept this long; older messages are refused by the inbox. Default: 14 days. */
  receiptRetentionMs?: number;
  /** Segments are written here before retention drops them: `{ directory }`, or a function. Default: they are not. */
  archive?: Archive;
  /** For relays with `source: "stream"`. */
  replication?: ReplicationOptions;
  clock?: Clock;
}

/** How relays read new messages from the server's own log, see docs/wal.md. */
export interface ReplicationOptions {
  /**
   * A client that is not connected yet: `() => new pg.Client({ …, replication: "database" })`. A connection pooler cannot
   * carry it. Default: as the pg.Pool of the store connects.
   */
  connect?: () => ReplicationClient;
  /** A slot is given up when it keeps more of the server's log than this, and messages come by polling. Default 1 GiB. */
  maxRetainedBytes?: number;
  /** Slots are kept on standbys too (PostgreSQL 17 and later). Default false. */
  failover?: boolean;
}

/** Handlers get the own transaction of the driver or the ORM, `Tx`; enqueueing takes those and one of any driver. */
export interface PostgresStore<Tx = SqlTransaction, OwnTx = never> extends Omit<Store<Tx>, "writer"> {
  readonly writer: Writer<PostgresTx | OwnTx>;
  /** GRANT statements for roles that may only write, only relay, only look, or maintain. */
  grants(roles: GrantRoles): string;
  /** Makes a restored copy usable: what was pending is enqueued again, under the transaction ids of this server. */
  rebase(): Promise<RebaseReport>;
  /** What relays with `source: "stream"` need on the server. */
  readonly wal: PostgresWal;
  /** Messages of the log in the order of positions, for `replay`. */
  readLog(query: LogQuery): AsyncGenerator<Message>;
}

const DAY_MS = 86_400_000;
/** A relay waits at least this long for an answer of the database. */
const MIN_ANSWER_MS = 5000;
const KNOWN = [
  "client",
  "schema",
  "tablePrefix",
  "segmentMs",
  "retentionMs",
  "abandonAfterMs",
  "receiptRetentionMs",
  "archive",
  "replication",
  "clock",
];
const REPLICATION_OPTIONS = ["connect", "maxRetainedBytes", "failover"];
const CONNECT = 'connect: () => new pg.Client({ …, replication: "database" })';
const GIB = 1_073_741_824;

/** txbox on PostgreSQL 14 or later, or PGlite, through the client that the application already has. */
export function createPostgresStore<Client extends PostgresClient | PostgresBridge>(
  options: PostgresStoreOptions<Client>,
): PostgresStore<TransactionOf<Client>, TakenBy<Client>> {
  const of = "createPostgresStore";
  rejectUnknownOptions(of, options, KNOWN);
  const { client, schema = "txbox", tablePrefix = "", clock = systemClock, abandonAfterMs, archive } = options;
  const { segmentMs = DAY_MS, retentionMs = 7 * DAY_MS, receiptRetentionMs = 14 * DAY_MS } = options;
  requireInteger(of, "segmentMs", segmentMs, 1);
  requireInteger(of, "retentionMs", retentionMs, 0);
  requireInteger(of, "receiptRetentionMs", receiptRetentionMs, DAY_MS);
  if (abandonAfterMs !== undefined) requireInteger(of, "abandonAfterMs", abandonAfterMs, retentionMs);
  if (archive !== undefined) requireArchive(of, archive);
  const database = withSafePath(databaseOf(client));
  const replication = replicationSettings(of, options.replication, database);
  const maxRetainedBytes = options.replication?.maxRetainedBytes ?? GIB;
  const bridge = bridgeOf(client);
  const names = postgresNames({ schema, tablePrefix });
  const sql = sturdy(database, names.schema);
  const store: PostgresStore<TransactionOf<Client>, TakenBy<Client>> = {
    name: "postgres",
    capabilities: {
      sharedRelays: !database.single,
      transactions: true,
      namedRelays: true,
      streams: replication !== undefined,
    },
    writer: createWriter({ names, bridge }),
    queue: {
      async join(join) {
        const runner = withDeadline(sql, Math.max(join.leaseMs, MIN_ANSWER_MS));
        const { onSourceEvent = () => undefined } = join;
        const listener = safeListener("onSourceEvent", onSourceEvent);
        const stream =
          join.source !== "stream"
            ? undefined
            : {
                replication: replication ?? cannotStream(),
                wake: join.onNews ?? (() => undefined),
                tell: (event: SourceEvent) => listener(event, event.type),
              };
        const port = new PostgresLanePort({ sql: runner, names, options: join, clock, stream });
        const session = new LaneSession(port, join, clock);
        await session.join();
        return session;
      },
    },
    ledger: createLedger({ database, names, receiptRetentionMs, bridge }) as Ledger<unknown> as Ledger<
      TransactionOf<Client>
    >,
    migrator: createMigrator({ database, names }),
    maintenance: toldMaintenance(
      "postgres",
      createMaintenance({
        database,
        sql,
        names,
        segmentMs,
        retentionMs,
        abandonAfterMs,
        receiptRetentionMs,
        archive,
        maxRetainedBytes,
      }),
    ),
    admin: createAdmin({ database, names, retention: { retentionMs, abandonAfterMs }, receiptRetentionMs }),
    history: createHistory(withDeadline(sql, MIN_ANSWER_MS), names),
    checks: postgresChecks({ database, names, segmentMs, retentionMs }),
    classify,
    grants: (roles) => postgresGrants(names, roles),
    rebase: () => rebase(database, names),
    wal: createWal(sql, names),
    readLog: (query) => readLog(new PlannedTransactions(database, names), names, query),
  };
  return store;
}

function replicationSettings(
  of: string,
  options: ReplicationOptions | undefined,
  database: Database,
): ReplicationSettings | undefined {
  if (options !== undefined) rejectUnknownOptions(`${of}: replication`, options, REPLICATION_OPTIONS);
  const { connect = database.replication, maxRetainedBytes = GIB, failover = false } = options ?? {};
  requireInteger(of, "replication.maxRetainedBytes", maxRetainedBytes, 1_048_576);
  if (connect === undefined) return undefined;
  requireFunction(of, "replication.connect", connect, CONNECT);
  return { connect, maxRetainedBytes, failover };
}

function cannotStream(): never {
  throw new TxboxError(
    "invalid_option",
    'source: "stream" needs a connection of its own, which this client cannot make',
    {
      field: "source",
      fix: `Give createPostgresStore replication: { ${CONNECT} }`,
    },
  );
}
