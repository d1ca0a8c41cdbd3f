import type { Activity, RelayFigures, Sample } from "../core/contracts.ts";
import { LANES } from "../core/lane.ts";
import { isLive } from "../core/live-processes.ts";
import { formatMs, plural } from "../core/plain-words.ts";
import type { ConsumerView, Level, RelayState, RelayView } from "./page-api.ts";
import { errorOrNull } from "./shown-text.ts";

/** What is remembered of a relay from look to look. */
export interface RelayMemory {
  readonly readings: { at: number; published: bigint; pending: number }[];
  /** Processes by owner, with the time at which they were first seen; null: they ran before the first look. */
  readonly owners: Map<string, number | null>;
  /** When it was last seen that messages left; at first, when it was first looked at. */
  flowedAt: number;
  /** That messages leave was seen by this page, so that it can be newer than the last sample. */
  sawFlow: boolean;
  /** A dead letter holds a key. */
  heldByDead: boolean;
  /** The error of one of them. */
  heldError: string | null;
  stateSince: { state: RelayState; at: number } | null;
}

const MINUTE_MS = 60_000;
/** Relays wait longer and longer between two tries of a target that is out. */
const OUT_MS = 2 * MINUTE_MS;
const SAMPLE_MS = 10_000;
/** A relay that cron runs has no process for a while. */
const ALONE_MS = 30_000;
const LATE_MS = MINUTE_MS;
/** Nothing has left for so long, though a process runs and messages wait. */
const STILL_MS = 10_000;
const RECENT_MS = 10 * MINUTE_MS;
/** With so many that are not behind blocked keys, these are not the reason. */
const FEW = 1000;

interface Looked {
  readonly store: string;
  readonly relay: RelayFigures;
  readonly activity: Activity | undefined;
  readonly samples: readonly Sample[];
  readonly memory: RelayMemory;
  readonly now: number;
}

export function relayView(looked: Looked): RelayView {
  const { store, relay, activity, memory, now } = looked;
  const processes = new Map<string, RelayView["processes"][number]>();
  for (const lane of relay.lanes.filter(isLive)) {
    const owner = lane.owner!;
    const known = processes.get(owner) ?? {
      owner,
      lanes: 0,
      leaseMs: lane.leaseMs,
      since: memory.owners.get(owner) ?? null,
      source: lane.source ?? null,
    };
    processes.set(owner, { ...known, lanes: known.lanes + lane.lanes, leaseMs: Math.min(known.leaseMs, lane.leaseMs) });
  }
  const owned = [...processes.values()].reduce((sum, { lanes }) => sum + lanes, 0);
  const { state, since } = stateOf(looked, processes.size);
  if (memory.stateSince?.state !== state) memory.stateSince = { state, at: now };
  return {
    store,
    name: relay.name,
    state,
    level: levelOf(state, looked),
    words: wordsOf(state, looked, since),
    since: since ?? (state === "flowing" || state === "idle" ? null : memory.stateSince.at),
    streams: relay.streams,
    paused: relay.paused,
    processes: [...processes.values()],
    freeLanes: Math.max(0, LANES - owned),
    published: relay.published.toString(),
    pending: relay.pending,
    pendingEstimated: relay.pendingEstimated,
    lagMs: relay.oldestPendingAgeMs,
    parked: relay.parked,
    blockedKeys: relay.blockedKeys,
    heldByDead: memory.heldByDead,
    heldError: errorOrNull(memory.heldError),
    dead: relay.dead,
    ...rates(looked),
    lastError: errorOrNull(activity?.lastError ?? null),
    lastErrorAt: activity?.lastErrorAt?.getTime() ?? null,
    holdsBackRetention: relay.holdsBackRetention,
  };
}

function rates({ activity, memory }: Looked): Pick<RelayView, "inPerSecond" | "outPerSecond"> {
  const [first, last] = [memory.readings[0], memory.readings.at(-1)];
  const seconds = first === undefined || last === undefined ? 0 : (last.at - first.at) / 1000;
  if (seconds < 2) return { inPerSecond: null, outPerSecond: activity?.perSecond ?? 0 };
  const out = Math.max(0, Number(last!.published - first!.published));
  const more = Math.max(0, out + last!.pending - first!.pending);
  return { inPerSecond: more / seconds, outPerSecond: out / seconds };
}

function stateOf(looked: Looked, processes: number): { state: RelayState; since: number | null } {
  const { relay, now } = looked;
  const { paused, pending, parked, blockedKeys } = relay;
  const lag = relay.oldestPendingAgeMs ?? 0;
  if (paused) return { state: "paused", since: null };
  const out = outSince(looked);
  if (out !== null && pending > 0 && processes > 0) return { state: "out", since: out };
  if (processes === 0 && pending > 0 && lag > ALONE_MS) return { state: "alone", since: now - lag };
  const others = pending - parked;
  if (blockedKeys > 0 && others < FEW) return { state: "blocked", since: lag > 0 ? now - lag : null };
  if (processes > 0 && lag > STILL_MS && now - looked.memory.flowedAt > STILL_MS)
    return { state: "still", since: looked.memory.flowedAt };
  if (lag > LATE_MS) return { state: "late", since: now - lag };
  if (pending > 0) return { state: processes === 0 ? "waiting" : "flowing", since: null };
  return { state: processes === 0 ? "idle" : "flowing", since: null };
}

/** Since when a relay's target has been out, by what its processes told; null: it is not. */
function outSince({ samples, memory, now }: Looked): number | null {
  const last = samples.at(-1);
  if (last === undefined || last.unavailable === 0 || last.published > 0) return null;
  const at = last.at.getTime();
  if (now - at > OUT_MS || (memory.sawFlow && memory.flowedAt > at + SAMPLE_MS)) return null;
  let since = at;
  for (const sample of samples.toReversed()) {
    const begin = sample.at.getTime();
    if (sample.published > 0 || sample.unavailable === 0 || since - begin > OUT_MS) break;
    since = begin;
  }
  return since;
}

function levelOf(state: RelayState, { relay, samples, memory, now }: Looked): Level {
  const diedLately = samples.some(({ dead, at }) => dead > 0 && now - at.getTime() < RECENT_MS);
  switch (state) {
    case "out":
    case "alone":
    case "late":
      return "bad";
    case "blocked":
      return memory.heldByDead || (relay.dead > 0 && diedLately) ? "bad" : "attention";
    case "still":
      return (relay.oldestPendingAgeMs ?? 0) > LATE_MS ? "bad" : "attention";
    case "paused":
      return "attention";
    default:
      if (relay.dead > 0) return diedLately ? "bad" : "attention";
      return relay.holdsBackRetention ? "attention" : "good";
  }
}

function wordsOf(state: RelayState, { relay, memory, now }: Looked, since: number | null): string {
  const lag = relay.oldestPendingAgeMs ?? 0;
  const span = since === null ? "" : ` for ${formatMs(now - since)}`;
  switch (state) {
    case "out":
      return `target out${span}`;
    case "alone":
      return "no process runs it";
    case "still":
      return `nothing has left${span}`;
    case "late":
      return `late by ${formatMs(lag)}`;
    case "blocked":
      return memory.heldByDead
        ? `dead letters hold ${plural(relay.blockedKeys, "key")}`
        : `${plural(relay.blockedKeys, "key")} blocked, retrying`;
    case "paused":
      return "paused";
    case "waiting":
      return "waits for a process";
    case "idle":
      return "no process, nothing waits";
    case "flowing":
      return [
        lag > 1000 ? `flows, ${formatMs(lag)} behind` : "flows",
        ...(relay.dead > 0 ? [plural(relay.dead, "dead letter")] : []),
      ].join(", ");
  }
}

interface LookedAtConsumer {
  readonly store: string;
  readonly name: string;
  /** Undefined: it did nothing today. */
  readonly activity: Activity | undefined;
  readonly samples: readonly Sample[];
  readonly failed: number | null;
  /** When its newest receipt was written. */
  readonly last: Date | null;
  readonly now: number;
}

export function consumerView({ store, name, activity, samples, failed, last, now }: LookedAtConsumer): ConsumerView {
  const recent = samples.filter(({ at }) => now - at.getTime() < 2 * MINUTE_MS);
  const sum = (field: "failed" | "processed" | "unavailable" | "rejected"): number =>
    recent.reduce((total, sample) => total + sample[field], 0);
  const fails = sum("failed") + sum("rejected");
  const isStuck = fails + sum("unavailable") > 0 && sum("processed") === 0;
  const level: Level = isStuck ? "bad" : fails > 0 ? "attention" : "good";
  const lastAt = samples.at(-1)?.at ?? last;
  const quiet = lastAt === null ? "quiet" : `quiet for ${formatMs(now - lastAt.getTime())}`;
  const words = isStuck
    ? "every delivery fails"
    : fails > 0
      ? `${plural(fails, "failure")} in two minutes`
      : recent.length > 0
        ? "handles messages"
        : quiet;
  return {
    store,
    name,
    level,
    words,
    perSecond: activity?.perSecond ?? 0,
    failed,
    lastError: errorOrNull(activity?.lastError ?? null),
    lastErrorAt: activity?.lastErrorAt?.getTime() ?? null,
  };
}
