import type { SectionName } from "../sections/index.ts";
import { compareBrokers } from "./brokers.ts";
import { compareDrain, compareEnqueue, compareInbox, compareLatency } from "./postgres.ts";
import { compareMongodb } from "./mongodb.ts";
import type { Sides } from "./sides.ts";

/** Sections whose figures can be compared with those of another commit. */
export const COMPARISONS: Partial<Record<SectionName, (sides: Sides) => Promise<void>>> = {
  drain: compareDrain,
  enqueue: compareEnqueue,
  latency: compareLatency,
  inbox: compareInbox,
  brokers: compareBrokers,
  mongodb: compareMongodb,
};
