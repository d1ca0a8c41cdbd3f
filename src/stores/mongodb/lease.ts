import type { Clock } from "../../core/contracts.ts";
import { USABLE } from "../../lanes/lane-hold.ts";
import type { RelayView } from "./mongodb-ownership.ts";

/** How an operation is kept from taking effect after the lease: it must begin before `until` and end within `maxTimeMS`. */
export interface Fence {
  /** By the server's clock. */
  until: Date;
  maxTimeMS: number;
}

/** An owner's hold on its lanes, as a write carries it. */
export interface Hold {
  relay: string;
  owner: string;
  leaseUntil: Date;
  fence: Fence;
}

const MAX_OPERATION_MS = 2000;
/** The part of a lease that an operation may take at most. */
const OPERATION = 0.4;

/** What this process knows of its lease, which the server alone decides. */
export class Lease {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  readonly #operationMs: number;
  /** The server's time, and this process's monotonic time at which it was known; the server's was not less then. */
  #serverAt = 0;
  #knownAt = 0;
  #until = 0;
  #validUntil = Number.NEGATIVE_INFINITY;
  #quietFrom = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#operationMs = Math.ceil(Math.min(MAX_OPERATION_MS, leaseMs * OPERATION));
  }

  /** Monotonic time up to which claimed messages may be published. */
  get validUntil(): number {
    return this.#validUntil;
  }

  get until(): Date {
    return new Date(this.#until);
  }

  /** Takes note of an answer; false when this owner is no longer a member. */
  note({ at, members }: RelayView, owner: string, sentAt: number): boolean {
    this.#serverAt = at.getTime();
    this.#knownAt = this.#clock.monotonic();
    const member = members.find((one) => one.owner === owner);
    if (member === undefined) return false;
    this.#until = member.lease_until.getTime();
    this.#validUntil = sentAt + this.#leaseMs * USABLE;
    return true;
  }

  /** Too little of it is left for another operation to begin and to end. */
  get short(): boolean {
    return this.serverNow() + this.#operationMs * 1.5 > this.#until;
  }

  /** The server's time as far as it is known: never ahead of it. */
  serverNow(): number {
    return this.#serverAt + (this.#clock.monotonic() - this.#knownAt);
  }

  /** For an operation that is sent now. */
  fence(): Fence {
    const until = Math.min(this.#until, this.serverNow() + this.#operationMs * 2) - this.#operationMs;
    return { until: new Date(until), maxTimeMS: this.#operationMs };
  }

  hold(relay: string, owner: string): Hold {
    return { relay, owner, leaseUntil: this.until, fence: this.fence() };
  }

  /** An operation failed without an answer: it may still take effect until its fence is over. */
  noteUnknown(): void {
    this.#quietFrom = this.#clock.monotonic() + this.#operationMs * 2;
  }

  /** Waits until nothing that was sent before can take effect any more. */
  async quiet(): Promise<void> {
    const left = this.#quietFrom - this.#clock.monotonic();
    if (left > 0) await this.#clock.sleep(left);
  }
}
