import { backoffMs } from "../../../core/backoff.ts";
import type { Clock, SourceEvent } from "../../../core/contracts.ts";
import { explainStreamError, WalRefusal } from "./wal-refusal.ts";

const BACKOFF = { baseMs: 1000, maxMs: 60_000 };
/** A stream that went on for so long was no failed attempt. */
const LASTED_MS = 60_000;
/** After so many refusals in a row lanes are shared among processes that poll, and a stream is tried again much later. */
const MOST_ATTEMPTS = 5;
const UNABLE_MS = 300_000;
/** A stream that a load has ended and that is not back by then is told to be lost. */
const BACK_MS = 2000;

const INTERRUPTED =
  "The lanes are being loaded anew, another process has them, or messages are tried one by one after processes died";

/** When a stream is tried next, and what is told of it: each change once. */
export class StreamTries {
  readonly #relay: string;
  readonly #clock: Clock;
  readonly #tell: (event: SourceEvent) => void;
  #attempts = 0;
  /** How often it was ended on purpose soon after it had started. */
  #stops = 0;
  #nextFrom = Number.NEGATIVE_INFINITY;
  #since = 0;
  /** Why there is no stream, as it was last told. */
  #reason: string | undefined;
  #isToldToStream = false;
  /** Since when a load keeps the stream from going on, though nothing is wrong with it. */
  #interruptedAt: number | undefined;
  /** The server cannot stream as it is set up: until then this process does not want to, so that lanes are shared. */
  #unableUntil = Number.NEGATIVE_INFINITY;

  constructor(relay: string, clock: Clock, tell: (event: SourceEvent) => void) {
    this.#relay = relay;
    this.#clock = clock;
    this.#tell = tell;
  }

  /** As far as is known. */
  get isAble(): boolean {
    return this.#clock.monotonic() >= this.#unableUntil;
  }

  /** It is time for the next one. */
  get isDue(): boolean {
    return this.#clock.monotonic() >= this.#nextFrom;
  }

  get reason(): string | undefined {
    return this.#reason;
  }

  started(from: "scan" | "resume"): void {
    this.#since = this.#clock.monotonic();
    this.#reason = undefined;
    this.#interruptedAt = undefined;
    if (this.#isToldToStream) return;
    this.#isToldToStream = true;
    this.#tell({ type: "stream_started", relay: this.#relay, from });
  }

  /** Everything is loaded anew: it is most often back in a moment. */
  interrupted(): void {
    this.#interruptedAt ??= this.#clock.monotonic();
  }

  /** Now and then. */
  look(): void {
    const now = this.#clock.monotonic();
    if (this.#isToldToStream && now - (this.#interruptedAt ?? now) > BACK_MS) this.#lost(new WalRefusal(INTERRUPTED));
  }

  failed(error: unknown): void {
    const now = this.#clock.monotonic();
    if (this.#isToldToStream && now - this.#since > LASTED_MS) this.#attempts = 0;
    // The first time at once: most losses are of a connection.
    const waitMs = this.#attempts++ === 0 ? 0 : Math.max(BACKOFF.baseMs, backoffMs(this.#attempts, BACKOFF));
    this.#nextFrom = now + waitMs;
    if (this.#attempts >= MOST_ATTEMPTS && !this.#isToldToStream) {
      this.#unableUntil = now + UNABLE_MS;
      this.#attempts = 0;
    }
    this.#lost(error);
  }

  /** What kept the server from streaming has been mended. */
  mended(): void {
    this.#attempts = 0;
    this.#nextFrom = Number.NEGATIVE_INFINITY;
    this.#unableUntil = Number.NEGATIVE_INFINITY;
  }

  /** It was ended on purpose, which is no failure. */
  stopped(why: unknown): void {
    const now = this.#clock.monotonic();
    if (now - this.#since > LASTED_MS) this.#stops = 0;
    this.#nextFrom =
      now + (this.#stops++ === 0 ? BACKOFF.baseMs : Math.max(BACKOFF.baseMs, backoffMs(this.#stops, BACKOFF)));
    this.#lost(why);
  }

  #lost(error: unknown): void {
    const reason = explainStreamError(error);
    const isTold = !this.#isToldToStream && reason === this.#reason;
    this.#reason = reason;
    this.#isToldToStream = false;
    this.#interruptedAt = undefined;
    if (isTold) return;
    // Messages that the server has thrown away for the stream still come by polling.
    const windowLost = /has been invalidated|can no longer get changes|requested WAL segment/.test(reason);
    this.#tell({ type: "stream_lost", relay: this.#relay, error: reason, windowLost });
  }
}
