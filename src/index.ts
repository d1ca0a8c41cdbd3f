export { createOutbox, type Outbox, type OutboxOptions } from "./outbox/outbox.ts";
export { createRelay, type DrainOptions, type DrainResult, type Relay, type RelayState } from "./relay/relay.ts";
export { replay, type ReplayReport } from "./relay/replay.ts";
export type { ReplayFilter, ReplayOptions, ReplayProgress } from "./relay/replay-options.ts";
export { createReconciler, type Found, type Reconciler, type ReconcilerOptions } from "./outbox/reconciler.ts";
export type * from "./core/events.ts";
export { runWithin } from "./core/channels.ts";
export { listen } from "./observability/listen.ts";
export { logEvents, type EventLogger, type LogLevel, type LogOptions } from "./observability/log-events.ts";
export {
  createHealth,
  type Health,
  type HealthOptions,
  type HealthReport,
  type ReadyReport,
  type WatchedRelay,
} from "./observability/health.ts";
export {
  watchStore,
  type Alert,
  type AlertName,
  type StoreWatch,
  type WatchStoreOptions,
} from "./observability/watch-store.ts";
export { audit } from "./audit/audit.ts";
export type { AuditOptions } from "./audit/audit-options.ts";
export type { AuditFinding, AuditOutcome, AuditProgress, AuditReport, RequeueReport } from "./audit/audit-report.ts";
export { diagnose, type Diagnosis, type DiagnoseOptions } from "./doctor/diagnose.ts";
export type { OnDead, RelayOptions } from "./relay/relay-options.ts";
export type { RelayTotals } from "./relay/relay-worker.ts";
export { createInbox, type Inbox, type InboxOptions, type InboxStore } from "./inbox/inbox.ts";
export type { HandlerContext, HandlerFunction, UnknownTypes } from "./inbox/handler-registry.ts";
export { publishEach, type PublishEachOptions } from "./core/publish-each.ts";
export { publishByKey, type ByKeyOptions } from "./core/by-key.ts";
export { defineEvents, type Contracts, type EventMapOf, type Events, type MessageOf } from "./core/event-map.ts";
export type { EventContract } from "./core/event-contract.ts";
export type { Contract, ContractsOf, EventDefinition } from "./core/contract.ts";
export type { FromJson } from "./core/from-json.ts";
export type { SchemaIssue, SchemaResult, StandardSchema } from "./core/standard-schema.ts";
export type {
  AnyEvents,
  Cause,
  EventMap,
  HandledMessage,
  HandledPayload,
  Headers,
  IncomingMessage,
  Message,
  NewContractMessage,
  NewMessage,
  NewMessageFields,
  NewMessageOf,
} from "./core/message.ts";
export type { SqlTransaction } from "./core/sql-transaction.ts";
export type * from "./core/contracts.ts";
export {
  PermanentError,
  TxboxError,
  UnavailableError,
  type ErrorCode,
  type ErrorDetails,
  type PayloadIssue,
} from "./core/errors.ts";
export {
  defineConfig,
  type DatabaseConfig,
  type ReconcilerConfig,
  type RelayConfig,
  type StoreConfig,
  type TxboxConfig,
} from "./config/define-config.ts";
