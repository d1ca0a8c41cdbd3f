import { systemClock } from "../core/clock.ts";
import type { Activity, ConsumerInfo, RelayFigures, Sample, Store, StoreFigures } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import { isLive } from "../core/live-processes.ts";
import { oneLook } from "../core/one-look.ts";
import { settledWithin } from "../core/settled-within.ts";
import type { HistoryMark, HistorySeries, StoreView } from "./page-api.ts";
import { errorText } from "./shown-text.ts";
import { consumerView, relayView, type RelayMemory } from "./relay-view.ts";

const HOUR_MS = 3_600_000;
/** Samples are of ten seconds; to ask for them more often would tell little more. */
const SAMPLES_EVERY_MS = 5000;
const ANSWER_MS = 5000;
const CONSUMERS_EVERY_MS = 60_000;
/** Rates are those of this time. */
const RATE_MS = 10_000;
/** Of this many relays and consumers the history is shown. */
const MOST_SERIES = 20;
const HELD_LOOK = 50;
const MOST_MARKS = 100;

/** Looks at one store and remembers what the store itself does not keep: lag over time, starts and ends of processes. */
export class StoreReader {
  readonly #name: string;
  readonly #store: Store;
  readonly #ask: () => Promise<StoreView>;
  readonly #memories = new Map<string, RelayMemory>();
  readonly #lag = new Map<string, [at: number, lagMs: number][]>();
  readonly #marks: HistoryMark[] = [];
  #samples: Sample[] = [];
  #sampledAt = 0;
  /** Consumers that have receipts, though they may have done nothing today. */
  #known: readonly ConsumerInfo[] = [];
  #knownAt = 0;
  #down: { since: number; error: string } | null = null;
  #last: StoreView | undefined;

  constructor(name: string, store: Store) {
    this.#name = name;
    this.#store = store;
    this.#ask = oneLook(() => this.#look());
  }

  /** Never rejects: a store that gives no answer is shown as such, with what was known of it last. */
  async read(): Promise<StoreView> {
    try {
      const view = await settledWithin(this.#ask(), ANSWER_MS);
      if (typeof view === "symbol") throw new Error(`There was no answer within ${ANSWER_MS} ms`);
      this.#down = null;
      this.#last = view;
      return view;
    } catch (error) {
      this.#down = { since: this.#down?.since ?? Date.now(), error: errorText(describeError(error)) };
      return { ...(this.#last ?? this.#empty()), down: this.#down };
    }
  }

  history(since: number): { series: HistorySeries[]; marks: HistoryMark[] } {
    const series = new Map<string, HistorySeries>();
    for (const sample of this.#samples) {
      const { relay, consumer } = sample;
      const key = JSON.stringify([relay, consumer]);
      const one = series.get(key) ?? { store: this.#name, relay, consumer, points: [], lag: [] };
      series.set(key, one);
      const done = sample.published + sample.processed;
      const failed = sample.retried + sample.failed;
      one.points.push([sample.at.getTime(), done, failed, sample.dead + sample.rejected, sample.unavailable]);
    }
    for (const [relay, lag] of this.#lag) {
      const key = JSON.stringify([relay, null]);
      const one = series.get(key) ?? { store: this.#name, relay, consumer: null, points: [], lag: [] };
      series.set(key, { ...one, lag: lag.filter(([at]) => at >= since) });
    }
    const shown = [...series.values()].sort((a, b) => b.points.length - a.points.length).slice(0, MOST_SERIES);
    return { series: shown, marks: this.#marks.filter(({ at }) => at >= since) };
  }

  #empty(): StoreView {
    return {
      name: this.#name,
      kind: this.#store.name,
      down: null,
      relays: [],
      consumers: [],
      scheduled: { count: 0, estimated: false, nextAt: null },
      unread: [],
      logBytes: 0,
      receiptBytes: 0,
    };
  }

  async #look(): Promise<StoreView> {
    const figures = await this.#store.admin.figures();
    await this.#readSamples(figures);
    return this.#view(figures);
  }

  async #readSamples({ relays }: StoreFigures): Promise<void> {
    const now = Date.now();
    if (now - this.#sampledAt < SAMPLES_EVERY_MS) return;
    const { admin } = this.#store;
    this.#samples = await admin.samples({ since: new Date(now - HOUR_MS) });
    for (const { name, blockedKeys, dead } of relays) {
      const held = blockedKeys > 0 && dead > 0 ? await admin.blocked({ relay: name, limit: HELD_LOOK }) : [];
      const first = held.find(({ heldByDead }) => heldByDead);
      Object.assign(this.#memory(name), { heldByDead: first !== undefined, heldError: first?.lastError ?? null });
    }
    this.#sampledAt = now;
    if (now - this.#knownAt < CONSUMERS_EVERY_MS) return;
    this.#knownAt = now;
    // A role may lack the right to look at receipts: then those of today are known.
    this.#known = await admin.consumers().catch(() => this.#known);
  }

  #memory(relay: string): RelayMemory {
    const known = this.#memories.get(relay);
    if (known !== undefined) return known;
    const memory: RelayMemory = {
      readings: [],
      owners: new Map(),
      flowedAt: Date.now(),
      sawFlow: false,
      heldByDead: false,
      heldError: null,
      stateSince: null,
    };
    this.#memories.set(relay, memory);
    return memory;
  }

  #view(figures: StoreFigures): StoreView {
    const now = Date.now();
    const names = new Set(figures.relays.map(({ name }) => name));
    for (const name of this.#memories.keys()) if (!names.has(name)) this.#memories.delete(name);
    for (const name of this.#lag.keys()) if (!names.has(name)) this.#lag.delete(name);
    const failed = new Map(figures.failedReceipts?.map(({ consumer, count }) => [consumer, count]));
    const { scheduled } = figures;
    return {
      name: this.#name,
      kind: this.#store.name,
      down: null,
      relays: figures.relays.map((relay) => this.#relay(relay, figures.activity, now)),
      consumers: this.#consumerNames(figures).map((name) => {
        const activity = figures.activity.find(({ consumer }) => consumer === name);
        const samples = this.#samples.filter(({ consumer }) => consumer === name);
        const count = figures.failedReceipts === null ? null : (failed.get(name) ?? 0);
        const last = this.#known.find(({ consumer }) => consumer === name)?.lastReceivedAt ?? null;
        return consumerView({ store: this.#name, name, activity, samples, failed: count, last, now });
      }),
      scheduled: { ...scheduled, nextAt: scheduled.nextAt?.getTime() ?? null },
      unread: figures.unread.slice(0, 100),
      logBytes: figures.logBytes,
      receiptBytes: figures.receiptBytes,
    };
  }

  #consumerNames({ activity }: StoreFigures): string[] {
    const active = activity.flatMap(({ consumer }) => (consumer === null ? [] : [consumer]));
    return [...new Set([...active, ...this.#known.map(({ consumer }) => consumer)])].toSorted();
  }

  #relay(relay: RelayFigures, activities: readonly Activity[], now: number): StoreView["relays"][number] {
    const memory = this.#memory(relay.name);
    const before = memory.readings.at(-1);
    if (before !== undefined && relay.published > before.published) {
      memory.flowedAt = now;
      memory.sawFlow = true;
    }
    memory.readings.push({ at: now, published: relay.published, pending: relay.pending });
    while (memory.readings.length > 2 && memory.readings[1]!.at <= now - RATE_MS) memory.readings.shift();
    this.#noteProcesses(relay, memory, now, before === undefined);
    const lag = this.#lag.get(relay.name) ?? [];
    this.#lag.set(relay.name, lag);
    // One point for five seconds: an hour of them is a small list.
    const [lastAt, lastLag] = lag.at(-1) ?? [0, 0];
    const lagMs = relay.oldestPendingAgeMs ?? 0;
    if (now - lastAt >= 5000) lag.push([now, lagMs]);
    else if (lagMs > lastLag) lag[lag.length - 1] = [lastAt, lagMs];
    while (lag.length > 0 && lag[0]![0] < now - HOUR_MS) lag.shift();
    const activity = activities.find((one) => one.relay === relay.name);
    const samples = this.#samples.filter((one) => one.relay === relay.name);
    return relayView({ store: this.#name, relay, activity, samples, memory, now });
  }

  #noteProcesses(relay: RelayFigures, memory: RelayMemory, now: number, isFirst: boolean): void {
    const live = new Set(relay.lanes.filter(isLive).map(({ owner }) => owner!));
    for (const owner of live) {
      if (memory.owners.has(owner)) continue;
      memory.owners.set(owner, isFirst ? null : now);
      if (!isFirst) this.#mark(now, `A process of ${relay.name} began`);
    }
    for (const owner of memory.owners.keys()) {
      if (live.has(owner)) continue;
      memory.owners.delete(owner);
      this.#mark(now, `A process of ${relay.name} ended`);
    }
  }

  #mark(at: number, text: string): void {
    this.#marks.push({ at, text });
    if (this.#marks.length > MOST_MARKS) this.#marks.shift();
  }
}

/** A pause between two looks. */
export const pause: (ms: number, signal: AbortSignal) => Promise<void> = (ms, signal) => systemClock.sleep(ms, signal);
