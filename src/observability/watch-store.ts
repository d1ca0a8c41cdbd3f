import { safeListener } from "../core/channels.ts";
import { systemClock } from "../core/clock.ts";
import type { Admin, Clock, StoreFigures } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import { oneLook } from "../core/one-look.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../core/options.ts";
import { settledWithin } from "../core/settled-within.ts";
import { AlertRules, type AlertLimits, type Finding } from "./alert-rules.ts";

export type AlertName = Finding["name"];

/** Something is wrong, or is over. */
export interface Alert {
  name: AlertName;
  /** "firing" once when it begins, "over" once when it has ended. */
  state: "firing" | "over";
  /** The relay or the stream that it is about. */
  relay?: string;
  stream?: string;
  /** For people: what is wrong, with the figures of the moment. */
  text: string;
  /** When it began. */
  since: Date;
}

export interface WatchStoreOptions extends Partial<AlertLimits> {
  store: { readonly admin: Pick<Admin, "figures"> };
  /** Called for each alert, when it begins and when it is over. What it throws costs a warning. */
  onAlert: (alert: Alert) => unknown;
  /** Time between two looks at the store. Default 15 s. */
  everyMs?: number;
  clock?: Clock;
}

export interface StoreWatch extends AsyncDisposable {
  /** Ends it; alerts that fire are not told as over. */
  stop(): Promise<void>;
}

const KNOWN = ["store", "onAlert", "everyMs", "maxAgeMs", "growthMs", "noRelayMs", "clock"];
const LOOK_MS = 10_000;

/**
 * For applications without Prometheus: looks at the store now and then and tells what is wrong. Each alert is told once
 * when it begins and once when it is over. One process is enough for a store; more tell the same.
 */
export function watchStore(options: WatchStoreOptions): StoreWatch {
  const of = "watchStore";
  rejectUnknownOptions(of, options, KNOWN);
  const { store, onAlert, everyMs = 15_000, clock = systemClock } = options;
  const { maxAgeMs = 300_000, growthMs = 600_000, noRelayMs = 120_000 } = options;
  requireFunction(of, "store.admin.figures", store?.admin?.figures, "Pass { store: createPostgresStore({ client }) }");
  requireFunction(of, "onAlert", onAlert, "Pass (alert) => { … }");
  for (const [name, value] of Object.entries({ everyMs, maxAgeMs, growthMs, noRelayMs })) {
    requireInteger(of, name, value, 1);
  }
  const tell = safeListener("onAlert", onAlert);
  const rules = new AlertRules({ maxAgeMs, growthMs, noRelayMs });
  const ask = oneLook(() => store.admin.figures(), clock);
  const firing = new Map<string, Alert>();
  const stopping = new AbortController();

  async function figures(): Promise<StoreFigures | string> {
    try {
      const found = await settledWithin(ask(), LOOK_MS, stopping.signal, clock);
      return typeof found === "symbol" ? `no answer within ${LOOK_MS} ms` : found;
    } catch (error) {
      return describeError(error);
    }
  }

  function compare(found: readonly Finding[]): void {
    const now = new Map(found.map((finding) => [keyOf(finding), finding]));
    for (const [key, finding] of now) {
      const alert: Alert = { ...finding, state: "firing", since: firing.get(key)?.since ?? new Date() };
      if (!firing.has(key)) tell({ ...alert }, finding.name);
      firing.set(key, alert);
    }
    for (const [key, alert] of firing) {
      if (now.has(key)) continue;
      firing.delete(key);
      tell({ ...alert, state: "over" }, alert.name);
    }
  }

  async function run(): Promise<void> {
    const { signal } = stopping;
    while (!signal.aborted) {
      const found = await figures();
      if (signal.aborted) break;
      // Nothing is known of the others meanwhile: they are neither told as over nor anew.
      if (typeof found === "string") compare([...firing.values(), storeAway(found)]);
      else compare(rules.judge(found, clock.monotonic()));
      await clock.sleep(everyMs, signal);
    }
  }

  const loop = run();
  const stop = async (): Promise<void> => {
    stopping.abort();
    await loop;
  };
  return { stop, [Symbol.asyncDispose]: stop };
}

function storeAway(why: string): Finding {
  return { name: "store_unavailable", text: `The store cannot be looked at: ${why}` };
}

function keyOf({ name, relay, stream }: Pick<Alert, "name" | "relay" | "stream">): string {
  return JSON.stringify([name, relay, stream]);
}
