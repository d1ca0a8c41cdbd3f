import type { Admin, RelayInfo } from "../core/contracts.ts";
import { describeError, TxboxError } from "../core/errors.ts";
import { isLive } from "../core/live-processes.ts";
import { oneLook } from "../core/one-look.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../core/options.ts";
import { settledWithin } from "../core/settled-within.ts";

export interface HealthOptions {
  store: { readonly admin: Pick<Admin, "relays"> };
  /** The relays that this process runs. Without any, `ready` looks at every relay of the store. */
  relays?: readonly WatchedRelay[];
  /** A relay whose oldest pending message has waited longer is not ready. Default: five minutes. */
  maxAgeMs?: number;
}

/** What is asked of a relay; `createRelay` gives it. */
export interface WatchedRelay {
  readonly name: string;
  state(): { readonly running: boolean; readonly turnedMsAgo: number | undefined };
}

export interface HealthReport {
  /** 200 or 503, for an answer by HTTP. */
  readonly ok: boolean;
  /** Why it is not. */
  readonly reasons: readonly string[];
}

export interface ReadyReport extends HealthReport {
  readonly relays: readonly {
    readonly name: string;
    readonly paused: boolean;
    readonly pending: number;
    readonly oldestPendingAgeMs: number | null;
  }[];
}

/** Health is about freshness: messages leave. That a process is alive says little of it. */
export interface Health {
  /** Whether the relays of this process run and their loops turn; without a look at the database. When not: restart it. */
  live(): HealthReport;
  /** Whether the store can be used and no relay has let its oldest message wait too long. A paused relay may. Never rejects. */
  ready(): Promise<ReadyReport>;
}

/** The loop that keeps the lease turns each second; the database may take a lease's time to answer. */
const MAX_TURN_MS = 120_000;
const LOOK_MS = 5000;
/** Probes of several askers share a look. */
const SHARED_MS = 1000;

export function createHealth(options: HealthOptions): Health {
  const of = "createHealth";
  rejectUnknownOptions(of, options, ["store", "relays", "maxAgeMs"]);
  const { store, relays = [], maxAgeMs = 300_000 } = options;
  requireFunction(of, "store.admin.relays", store?.admin?.relays, "Pass { store: createPostgresStore({ client }) }");
  requireInteger(of, "maxAgeMs", maxAgeMs, 1);
  for (const relay of relays) {
    if (typeof relay?.state === "function" && typeof relay.name === "string") continue;
    throw new TxboxError("invalid_option", `${of}: relays must be an array of relays`, {
      field: "relays",
      fix: "Pass relays: [relay] with what createRelay gave",
    });
  }
  const ask = oneLook(() => store.admin.relays());
  let looked: { at: number; report: Promise<ReadyReport> } | undefined;

  async function look(): Promise<ReadyReport> {
    try {
      const found = await settledWithin(ask(), LOOK_MS);
      if (typeof found === "symbol") return notReady(`the store did not answer within ${LOOK_MS} ms`);
      return judge(found);
    } catch (error) {
      return notReady(`the store cannot be used: ${describeError(error)}`);
    }
  }

  function judge(found: readonly RelayInfo[]): ReadyReport {
    const own = relays.length === 0 ? found : found.filter(({ name }) => relays.some((relay) => relay.name === name));
    const reasons = own.flatMap((relay) => {
      const age = relay.oldestPendingAgeMs ?? 0;
      return relay.paused || age <= maxAgeMs ? [] : [stale(relay, age, maxAgeMs)];
    });
    const shown = own.map(({ name, paused, pending, oldestPendingAgeMs }) => {
      return { name, paused, pending, oldestPendingAgeMs };
    });
    return { ok: reasons.length === 0, reasons, relays: shown };
  }

  return {
    live() {
      const reasons = relays.flatMap((relay) => {
        const { running, turnedMsAgo } = relay.state();
        if (!running) return [`relay ${relay.name} does not run`];
        if (turnedMsAgo === undefined || turnedMsAgo <= MAX_TURN_MS) return [];
        return [`the loop of relay ${relay.name} has not turned for ${seconds(turnedMsAgo)}`];
      });
      return { ok: reasons.length === 0, reasons };
    },
    ready() {
      const now = performance.now();
      if (looked === undefined || now - looked.at > SHARED_MS) looked = { at: now, report: look() };
      return looked.report;
    },
  };
}

function stale({ name, pending, parked, lanes }: RelayInfo, age: number, maxAgeMs: number): string {
  const behind = parked === 0 ? "" : `; ${parked} of them wait behind failed ones`;
  const owners = lanes.some(isLive) ? "" : "; no process runs it";
  return `relay ${name}: the oldest of ${pending} pending messages has waited ${seconds(age)}, more than ${seconds(maxAgeMs)}${behind}${owners}`;
}

function notReady(reason: string): ReadyReport {
  return { ok: false, reasons: [reason], relays: [] };
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}
