import type { Context } from "../lib/context.ts";
import * as backlog from "./backlog.ts";
import * as brokers from "./brokers.ts";
import * as drain from "./drain.ts";
import * as enqueue from "./enqueue.ts";
import * as failing from "./failing.ts";
import * as inbox from "./inbox.ts";
import * as latency from "./latency.ts";
import * as mongodb from "./mongodb.ts";
import * as operations from "./operations.ts";
import * as page from "./page.ts";
import * as peers from "./peers.ts";
import * as wal from "./wal.ts";

interface Section {
  /** One line for --help. */
  summary: string;
  /** Runs when no section is named; "full": unless the run is a quick one. */
  byDefault: boolean | "full";
  run(context: Context): Promise<void>;
}

export type SectionName =
  | "drain"
  | "enqueue"
  | "latency"
  | "inbox"
  | "backlog"
  | "failing"
  | "operations"
  | "wal"
  | "page"
  | "peers"
  | "brokers"
  | "mongodb";

/** In the order of the run. A new section is a file beside this one and a line here. */
export const SECTIONS: Record<SectionName, Section> = {
  drain: { ...drain, byDefault: true },
  enqueue: { ...enqueue, byDefault: true },
  latency: { ...latency, byDefault: true },
  inbox: { ...inbox, byDefault: true },
  backlog: { ...backlog, byDefault: true },
  failing: { ...failing, byDefault: "full" },
  operations: { ...operations, byDefault: "full" },
  wal: { ...wal, byDefault: "full" },
  page: { ...page, byDefault: "full" },
  // Part of drain already.
  peers: { ...peers, byDefault: false },
  // The servers alone take a quarter of a quick run to start.
  brokers: { ...brokers, byDefault: "full" },
  mongodb: { ...mongodb, byDefault: "full" },
};
