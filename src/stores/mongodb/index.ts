export { createMongoStore } from "./mongodb-store.ts";
export type { MongoStore, MongoStoreOptions } from "./mongodb-store.ts";
export { WITHOUT_TRANSACTION } from "./mongodb-client.ts";
export { writeResult } from "./write-result.ts";
export type { ResultCollection, WriteResultOptions } from "./write-result.ts";
export type { SourceEvent } from "../../core/contracts.ts";
export type { WakeUp, WakeUpOptions } from "./wake-up.ts";
export type { WakeUpEvent } from "../../core/events.ts";
export type { MongoClientLike, MongoSession, MongoTx, SessionOf, WithoutTransaction } from "./mongodb-client.ts";
