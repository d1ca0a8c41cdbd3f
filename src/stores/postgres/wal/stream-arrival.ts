import type { Clock } from "../../../core/contracts.ts";
import type { SqlRunner } from "../postgres-client.ts";
import { endOfLog } from "./anchor-sql.ts";
import type { Lsn } from "./pgoutput.ts";

/** Polling goes on while a stream comes up to the server's log; without any progress for so long the stream is given up. */
const MOST_MS = 60_000;
/** What the log has grown by in less than this comes in a moment. */
const SHORT_MS = 500;

export interface ArrivalOptions {
  readonly sql: SqlRunner;
  readonly clock: Clock;
  /** Up to where the stream has come. */
  readonly received: () => Lsn;
  readonly onArrived: () => void;
  readonly onError: (error: unknown) => void;
}

/** The way of a stream that was opened to the end of the server's log. Until it is there, messages come by polling. */
export class StreamArrival {
  readonly #options: ArrivalOptions;
  /** Undefined: not known at this moment. */
  #goal: Lsn | undefined;
  #since = 0;
  #isLast = false;
  #hasArrived = false;
  /** Where it was at the last look, and since when. */
  #came: { readonly received: Lsn; readonly serverEnd: Lsn; readonly at: number } | undefined;

  constructor(options: ArrivalOptions) {
    this.#options = options;
  }

  get hasArrived(): boolean {
    return this.#hasArrived;
  }

  /** The server's log ended here when the stream was opened. */
  goTo(end: Lsn): void {
    this.#goal = end;
    this.#since = this.#options.clock.monotonic();
    this.note();
  }

  /** The stream has brought something, which may be the end of the log. */
  note(): void {
    const { clock, sql, received, onArrived, onError } = this.#options;
    if (this.#hasArrived || this.#goal === undefined || received() < this.#goal) return;
    const now = clock.monotonic();
    if (this.#isLast || now - this.#since < SHORT_MS) {
      this.#hasArrived = true;
      onArrived();
      return;
    }
    // Meanwhile the log has grown. Once more, and no further: it may grow all the time.
    this.#goal = undefined;
    this.#isLast = true;
    endOfLog(sql).then((end) => this.goTo(end), onError);
  }

  /** Nothing has come for long. `serverEnd`: what the server says of its way, also over an old part that it reads once more. */
  isStuck(serverEnd: Lsn, isHeld: boolean): boolean {
    const at = this.#options.clock.monotonic();
    const received = this.#options.received();
    const before = this.#came;
    const hasMoved = before?.received !== received || before.serverEnd !== serverEnd;
    if (hasMoved || isHeld || this.#hasArrived) this.#came = { received, serverEnd, at };
    return at - this.#came!.at > MOST_MS;
  }
}
