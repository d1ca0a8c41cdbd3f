export { createPostgresStore } from "./postgres-store.ts";
export type { PostgresStore, PostgresStoreOptions, ReplicationOptions } from "./postgres-store.ts";
export { notATransaction } from "./drivers/driver.ts";
export { poolOfClients } from "./bridges/pool-of-clients.ts";
export type { ClientSource } from "./bridges/pool-of-clients.ts";
export type { BridgedStatements, PostgresBridge } from "./bridges/bridge.ts";
export type {
  PgClient,
  Pglite,
  PgliteTx,
  PgPool,
  PostgresClient,
  PostgresJs,
  PostgresJsTx,
  PostgresTx,
  TransactionOf,
} from "./postgres-client.ts";
export type { GrantRoles } from "./postgres-grants.ts";
export type { RebaseReport } from "./postgres-rebase.ts";
export type { LogQuery } from "./read-log.ts";
export type { Archive, ArchiveSegment } from "./segment-archive.ts";
export type { PostgresWal, RelayWal, WalStatus } from "./wal/wal-admin.ts";
export type { ReplicationClient } from "./wal/replication-connection.ts";
