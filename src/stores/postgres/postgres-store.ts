import { systemClock } from "../../core/clock.ts";
import type { Clock, Ledger, Store, Writer } from "../../core/contracts.ts";
import { LaneSession } from "../../lanes/lane-session.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import type { Message } from "../../core/message.ts";
import type { SqlTransaction } from "../../core/sql-transaction.ts";
import { toldMaintenance } from "../shared/told-maintenance.ts";
import { classify } from "./classify-error.ts";
import { postgresChecks } from "./doctor.ts";
import { readLog, type LogQuery } from "./read-log.ts";
import { PlannedTransactions } from "./planned-transactions.ts";
import { createAdmin } from "./postgres-admin.ts";
import type { PostgresBridge, PostgresClient, PostgresTx, TakenBy, TransactionOf } from "./postgres-client.ts";
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
  clock?: Clock;
}

/** Handlers get the own transaction of the driver or the ORM, `Tx`; enqueueing takes those and one of any driver. */
export interface PostgresStore<Tx = SqlTransaction, OwnTx = never> extends Omit<Store<Tx>, "writer"> {
  readonly writer: Writer<PostgresTx | OwnTx>;
  /** GRANT statements for roles that may only write, only relay, only look, or maintain. */
  grants(roles: GrantRoles): string;
  /** Makes a restored copy usable: what was pending is enqueued again, under the transaction ids of this server. */
  rebase(): Promise<RebaseReport>;
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
  "clock",
];

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
  const bridge = bridgeOf(client);
  const names = postgresNames({ schema, tablePrefix });
  const sql = sturdy(database, names.schema);
  return {
    name: "postgres",
    capabilities: { sharedRelays: !database.single, transactions: true, namedRelays: true, streams: false },
    writer: createWriter({ names, bridge }),
    queue: {
      async join(join) {
        const runner = withDeadline(sql, Math.max(join.leaseMs, MIN_ANSWER_MS));
        const session = new LaneSession(new PostgresLanePort(runner, names, join), join, clock);
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
      createMaintenance({ database, sql, names, segmentMs, retentionMs, abandonAfterMs, receiptRetentionMs, archive }),
    ),
    admin: createAdmin({ database, names, retention: { retentionMs, abandonAfterMs }, receiptRetentionMs }),
    history: createHistory(withDeadline(sql, MIN_ANSWER_MS), names),
    checks: postgresChecks({ database, names, segmentMs, retentionMs }),
    classify,
    grants: (roles) => postgresGrants(names, roles),
    rebase: () => rebase(database, names),
    readLog: (query) => readLog(new PlannedTransactions(database, names), names, query),
  };
}
