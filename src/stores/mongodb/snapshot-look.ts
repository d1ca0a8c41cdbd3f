import type { Clock } from "../../core/contracts.ts";
import { answeredWithin } from "../shared/answer-deadline.ts";
import type { ClusterTime } from "./cluster-time.ts";
import { type Database, type Document, READ_OPTIONS } from "./mongodb-client.ts";
import { isSnapshotUnavailable, noChangeStreams } from "./mongodb-errors.ts";

export interface LookOptions {
  stream: { database: Database; collection: string };
  clock: Clock;
  deadlineMs: number;
}

/** What was ready at a moment of the cluster. */
export interface ReadyAt {
  readonly at: ClusterTime;
  /** The greatest position; undefined when nothing was. */
  last: number | undefined;
}

const TRIES = 20;
const PAUSE_MS = 50;

/** A look at one moment, with everything that was committed until then and nothing that came later. */
export async function readyAt(options: LookOptions, filter: Document): Promise<ReadyAt> {
  const command = {
    find: options.stream.collection,
    filter,
    sort: { position: -1 },
    limit: 1,
    projection: { _id: 0, position: 1 },
    hint: "txbox_ready",
    readConcern: { level: "snapshot" },
  };
  for (let attempt = 1; ; attempt++) {
    try {
      const { cursor } = (await run(options, command)) as { cursor: Document };
      const [last] = cursor["firstBatch"] as { position?: number }[];
      // A document that was edited until it had no position is still there, before all others.
      const position = last === undefined ? undefined : (last.position ?? Number.NEGATIVE_INFINITY);
      return { at: cursor["atClusterTime"] as ClusterTime, last: position };
    } catch (error) {
      if (!isSnapshotUnavailable(error) || attempt === TRIES) throw error;
      await options.clock.sleep(PAUSE_MS);
    }
  }
}

/** A time that is not before anything that was written until now. */
export async function operationTime(options: LookOptions): Promise<ClusterTime> {
  return (await run(options, { ping: 1 }))["operationTime"] as ClusterTime;
}

/** A standalone server has no change streams, and what a mongos says of the time is not that of the shard. */
export async function requireReplicaSet({ db }: Database): Promise<void> {
  const { setName, msg } = await db.command({ hello: 1 });
  if (typeof setName !== "string") throw noChangeStreams(msg === "isdbgrid");
}

function run({ stream, deadlineMs }: LookOptions, command: Document): Promise<Document> {
  return answeredWithin(stream.database.db.command(command, READ_OPTIONS), deadlineMs);
}
