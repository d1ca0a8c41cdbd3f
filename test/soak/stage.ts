import type { Store } from "../../src/core/contracts.ts";
import type { BusinessRow, Fact } from "./checker.ts";
import type { Random } from "./random.ts";

export type StageName = "postgres" | "postgres-wal" | "mongodb" | "mongodb-change-stream";

/** A server that can be killed. */
export interface SoakServer {
  readonly url: string;
  kill(): Promise<void>;
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface World {
  /** Business data and the outbox. */
  source: string;
  /** Effects and the inbox. */
  target: string;
}

export interface Left {
  committed: number;
  effects: number;
  /** Transactions that are prepared and not ended. */
  undecided: number;
}

/** What the soak needs of a database beside its store. */
export interface Stage {
  readonly name: StageName;
  /** How many times longer relays and the server are left alone between faults. Default 1. */
  readonly patience?: number;
  /** The process that writes business data and messages. */
  readonly writerFile: string;
  start(): Promise<SoakServer>;
  createWorld(serverUrl: string): Promise<World>;
  openStore(url: string, connections: number): { store: Store<object>; close(): Promise<void> };
  /** In the handler's transaction. */
  writeEffect(tx: object, effect: Fact & { messageId: string }): Promise<void>;
  watch(world: World): Watch;
}

export interface Watch {
  readonly store: Store;
  /** Ends what crashes have left undecided; how many. */
  resolve(random: Random, all: boolean): Promise<number>;
  left(): Promise<Left>;
  business(): Promise<BusinessRow[]>;
  effects(): Promise<Fact[]>;
  /** What should be empty or whole when everything has arrived. */
  leftovers(): Promise<Record<string, number>>;
  /** Breaks something that only this stage has. */
  disturb?(random: Random): Promise<boolean>;
  close(): Promise<void>;
}

/** The stage of a store whose relays get new messages this way. */
export function stageName(store: string, source = "polling"): string {
  if (source === "polling") return store;
  if (store === "mongodb" && source === "stream") return "mongodb-change-stream";
  if (store === "postgres" && (source === "stream" || source === "wal")) return "postgres-wal";
  throw new Error(`--source cannot be ${source} with --store ${store}`);
}

export async function stageNamed(name: string): Promise<Stage> {
  if (name === "postgres") return (await import("./postgres-stage.ts")).postgresStage;
  if (name === "postgres-wal") return (await import("./postgres-stage.ts")).postgresWalStage;
  if (name === "mongodb") return (await import("./mongodb-stage.ts")).mongodbStage;
  if (name === "mongodb-change-stream") return (await import("./mongodb-stage.ts")).mongodbStreamStage;
  throw new Error(`--store must be postgres or mongodb, got ${name}`);
}
