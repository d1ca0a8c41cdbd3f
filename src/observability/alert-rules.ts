import type { RelayFigures, StoreFigures } from "../core/contracts.ts";
import { processesOf } from "../core/live-processes.ts";

/** When something is an alert. */
export interface AlertLimits {
  /** The oldest pending message of a relay has waited longer. Default: five minutes. */
  maxAgeMs: number;
  /** More came in than went out for so long; dead letters that grew fire for so long. Default: ten minutes. */
  growthMs: number;
  /** Messages that could go have waited so long with no process that runs their relay. Default: two minutes. */
  noRelayMs: number;
}

/** What is wrong at a look. */
export interface Finding {
  name: "lag" | "dead_letters" | "growing" | "no_relay" | "retention_held_back" | "unread_stream" | "store_unavailable";
  relay?: string;
  stream?: string;
  text: string;
}

/** A backlog below this is no reason for an alert, though it grows. */
const MIN_GROWTH = 1000;

interface Memory {
  /** Backlog at each look, oldest first, over the time of growth. */
  readonly backlog: { at: number; pending: number }[];
  dead: number;
  /** When dead letters grew last. */
  grewAt: number;
  /** Since when messages that could go wait without a process. */
  aloneSince: number | undefined;
}

/** Judges figures, with what it remembers of those before. */
export class AlertRules {
  readonly #limits: AlertLimits;
  readonly #relays = new Map<string, Memory>();

  constructor(limits: AlertLimits) {
    this.#limits = limits;
  }

  /** All that is wrong at this look; `now` is monotonic, in ms. */
  judge({ relays, unread }: StoreFigures, now: number): Finding[] {
    const names = new Set(relays.map(({ name }) => name));
    for (const name of this.#relays.keys()) if (!names.has(name)) this.#relays.delete(name);
    const found = relays.flatMap((relay) => {
      const memory = this.#remember(relay, now);
      return [...ofRelay(relay, this.#limits), ...this.#overTime(relay, memory, now)];
    });
    const waiting = unread.filter(({ oldestAgeMs }) => oldestAgeMs > this.#limits.maxAgeMs);
    const alone = waiting.map(({ stream, oldestAgeMs }): Finding => {
      const text = `No relay reads the stream ${stream}: its messages have waited ${span(oldestAgeMs)} and go when their retention is over`;
      return { name: "unread_stream", stream, text };
    });
    return [...found, ...alone];
  }

  #remember(relay: RelayFigures, now: number): Memory {
    const known = this.#relays.get(relay.name);
    const memory: Memory = known ?? {
      backlog: [],
      dead: relay.dead,
      grewAt: Number.NEGATIVE_INFINITY,
      aloneSince: undefined,
    };
    this.#relays.set(relay.name, memory);
    if (relay.dead > memory.dead) memory.grewAt = now;
    memory.dead = relay.dead;
    // A relay that cron runs has no process most of the time, and what is parked waits for its time.
    const isAlone = processesOf(relay) === 0 && !relay.paused && relay.pending > relay.parked;
    memory.aloneSince = isAlone ? (memory.aloneSince ?? now) : undefined;
    // A paused relay is meant to have a growing backlog.
    if (relay.paused) memory.backlog.length = 0;
    memory.backlog.push({ at: now, pending: relay.pending });
    // The last one before the time of growth begins stays.
    while (memory.backlog.length > 1 && memory.backlog[1]!.at <= now - this.#limits.growthMs) memory.backlog.shift();
    return memory;
  }

  #overTime({ name, dead, pending }: RelayFigures, memory: Memory, now: number): Finding[] {
    const { growthMs, noRelayMs } = this.#limits;
    const found: Finding[] = [];
    if (dead > 0 && now - memory.grewAt < growthMs) {
      found.push({ name: "dead_letters", relay: name, text: `Dead letters of relay ${name} grow: ${dead} by now` });
    }
    const [first] = memory.backlog;
    const isWhole = first !== undefined && now - first.at >= growthMs;
    const grew = pending - (first?.pending ?? pending);
    if (isWhole && grew >= MIN_GROWTH) {
      const text = `More comes in than relay ${name} publishes: ${grew} more pending than ${span(growthMs)} ago, ${pending} in all`;
      found.push({ name: "growing", relay: name, text });
    }
    if (memory.aloneSince !== undefined && now - memory.aloneSince >= noRelayMs) {
      const text = `No process runs relay ${name}, and ${pending} messages wait`;
      found.push({ name: "no_relay", relay: name, text });
    }
    return found;
  }
}

function ofRelay(relay: RelayFigures, { maxAgeMs }: AlertLimits): Finding[] {
  const { name, pending, paused, holdsBackRetention } = relay;
  const age = relay.oldestPendingAgeMs ?? 0;
  const found: Finding[] = [];
  if (age > maxAgeMs && !paused) {
    const text = `The oldest of ${pending} pending messages of relay ${name} has waited ${span(age)}`;
    found.push({ name: "lag", relay: name, text });
  }
  if (holdsBackRetention) {
    const text = `Relay ${name} holds back retention: the log grows. Run it, or drop it`;
    found.push({ name: "retention_held_back", relay: name, text });
  }
  return found;
}

function span(ms: number): string {
  return ms < 120_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`;
}
