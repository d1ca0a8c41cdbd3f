import { isDate } from "node:util/types";
import { systemClock } from "../core/clock.ts";
import type { Admin, Author, DeadChoice, DeadFilter, DeadLetter, DeadPlace, Store } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../core/options.ts";
import { Pace } from "../core/pace.ts";
import { uuidv7 } from "../core/uuid.ts";
import { shownValue } from "../core/value-kind.ts";
import { deadChoice } from "../stores/shared/checked-admin.ts";
import { RelayOutage } from "./relay-outage.ts";

/** Which letters, how fast, from when on and how often. */
export interface RedriveOptions extends DeadChoice {
  /** Letters per second, from 0.01 to 10,000. */
  perSecond: number;
  /** Nothing happens before. Default: at once. */
  startAt?: Date;
  /**
   * How often a letter is requeued that dies again of the same. With more than one round, each waits until all letters of
   * the one before are through or dead. Default 1, which ends when all are requeued.
   */
  rounds?: number;
  /** Ends it between two parts: what is requeued stays so. */
  signal?: AbortSignal;
  onProgress?: (progress: RedriveProgress) => void;
  /** The person who does it and why, for the list of changes. */
  by?: Pick<Author, "actor" | "reason">;
}

export interface RedriveProgress {
  /** So far, in all rounds. */
  requeued: number;
  round: number;
  /** Why nothing is requeued at this moment: the target is out, no process runs, the relay is paused. Null: it goes on. */
  waitingFor: string | null;
}

export interface RedriveReport {
  /** In all rounds: a letter that was requeued twice counts twice. */
  requeued: number;
  rounds: number;
  /** Letters that were dead of the same again when it ended; null where it did not wait for that, with one round. */
  diedAgain: number | null;
  /** The signal ended it. */
  stopped: boolean;
}

const OF = "redrive";
const OPTIONS: readonly string[] = ["perSecond", "startAt", "rounds", "signal", "onProgress", "by"];
const CHOICE: readonly (keyof DeadChoice)[] = [
  "relay",
  "id",
  "position",
  "stream",
  "type",
  "key",
  "group",
  "all",
  "letters",
  "limit",
];
const MOST_AT_ONCE = 500;
const MAX_ROUNDS = 100;
/** How long before a relay that could not deliver is asked after again, and letters that are under way. */
const LOOK_MS = 1000;
/** Longer than this no timer runs. */
const MAX_SLEEP_MS = 3_600_000;
const MOST_IDS = 200;

/**
 * Requeues dead letters at a rate, oldest first, so that those of a key keep their order. While a relay of theirs cannot
 * deliver, it waits. Letters that die meanwhile and match are taken along. All of it is noted as one change.
 */
export async function redrive(
  store: { readonly admin: Store["admin"] },
  options: RedriveOptions,
): Promise<RedriveReport> {
  return new Redrive(store.admin, options).run();
}

class Redrive {
  readonly #admin: Admin;
  readonly #options: RedriveOptions;
  readonly #choice: DeadChoice;
  readonly #pace: Pace;
  readonly #outage: RelayOutage;
  #requeued = 0;
  #round = 1;

  constructor(admin: Admin, options: RedriveOptions) {
    this.#choice = checkedOptions(options);
    this.#options = options;
    this.#admin = admin.by({ ...options.by, redrive: uuidv7() });
    this.#pace = new Pace(options.perSecond, MOST_AT_ONCE);
    this.#outage = new RelayOutage(admin);
  }

  async run(): Promise<RedriveReport> {
    const { startAt, rounds = 1 } = this.#options;
    await this.#until(startAt?.getTime() ?? 0);
    const sent = await this.#requeueAll(this.#pages());
    const diedAgain = rounds > 1 ? await this.#goOn(sent, rounds) : null;
    return { requeued: this.#requeued, rounds: this.#round, diedAgain, stopped: this.#stopped };
  }

  /** Further rounds, after the first; how many letters are dead in the end. */
  async #goOn(first: Sent, rounds: number): Promise<number> {
    for (let [next, sent] = [2, first]; ; next++) {
      const again = await this.#deadAgain(sent);
      if (next > rounds || again.length === 0 || this.#stopped) return again.length;
      this.#round = next;
      sent = await this.#requeueAll(inParts(again, MOST_AT_ONCE));
    }
  }

  get #stopped(): boolean {
    return this.#options.signal?.aborted === true;
  }

  async #until(time: number): Promise<void> {
    for (let left = time - Date.now(); left > 0 && !this.#stopped; left = time - Date.now())
      await this.#sleep(Math.min(MAX_SLEEP_MS, left));
  }

  #sleep(ms: number): Promise<void> {
    return systemClock.sleep(ms, this.#options.signal);
  }

  /** Requeues letters part by part; gives the letters that it has requeued. */
  async #requeueAll(pages: AsyncIterable<DeadLetter[]> | Iterable<DeadLetter[]>): Promise<Sent> {
    const sent: Sent = new Map();
    for await (const page of pages) {
      for (const letters of inParts(page, this.#pace.most)) {
        await this.#whileOut(letters);
        await this.#pace.turn(letters.length, this.#options.signal);
        if (this.#stopped) return sent;
        const { limit: _limit, all: _all, ...filter } = this.#choice;
        this.#requeued += await this.#admin.requeue({ ...filter, letters: letters.map(placeOf) });
        for (const letter of letters) sent.set(nameOf(letter), letter);
        this.#tell(null);
      }
    }
    return sent;
  }

  async #whileOut(letters: readonly DeadLetter[]): Promise<void> {
    for (;;) {
      const why = this.#stopped ? undefined : await this.#outage.of(letters.map(({ relay }) => relay));
      if (why === undefined) return;
      this.#tell(why);
      await this.#sleep(LOOK_MS);
    }
  }

  /** The letters that are meant, in order. One that waits to be requeued or discarded already is left alone. */
  async *#pages(): AsyncGenerator<DeadLetter[]> {
    const { limit = Number.POSITIVE_INFINITY } = this.#choice;
    const wanted = this.#choice.letters && new Set(this.#choice.letters.map(nameOf));
    let left = limit;
    for await (const page of lettersOf(this.#admin, filterOf(this.#choice))) {
      const open = page.filter((letter) => letter.command === null && (wanted?.has(nameOf(letter)) ?? true));
      yield open.slice(0, left);
      left -= open.length;
      if (left <= 0) return;
    }
  }

  /** Waits until each letter is through or dead. Gives the letters that died again and are still meant, in order. */
  async #deadAgain(sent: Sent): Promise<DeadLetter[]> {
    const open = new Map(sent);
    for (;;) {
      const again: DeadLetter[] = [];
      const waiting = new Set<string>();
      for await (const page of lettersOf(this.#admin, filterOf(this.#choice))) {
        for (const letter of page) {
          const name = nameOf(letter);
          if (!sent.has(name)) continue;
          if (letter.command === null) again.push(letter);
          else waiting.add(name);
          open.delete(name);
        }
      }
      const underWay = await this.#underWay(open);
      if (waiting.size === 0 && underWay === 0) return again;
      if (this.#stopped) return again;
      for (const name of waiting) open.set(name, sent.get(name)!);
      const why = await this.#outage.of([...sent.values()].map(({ relay }) => relay));
      this.#tell(why ?? `${waiting.size + underWay} letters are under way`);
      await this.#sleep(LOOK_MS);
    }
  }

  /** How many of these have not gone out yet; the others are forgotten. */
  async #underWay(open: Sent): Promise<number> {
    for (const part of inParts([...open.values()], MOST_IDS)) {
      const found = await this.#admin.find({ ids: part.map(({ id }) => id), limit: 10_000, contents: false });
      const busy = new Set(
        found.flatMap(({ relay, id, stream, status }) =>
          ["pending", "processing", "retrying"].includes(status) ? [nameOf({ relay: relay ?? "", stream, id })] : [],
        ),
      );
      for (const letter of part) if (!busy.has(nameOf(letter))) open.delete(nameOf(letter));
    }
    return open.size;
  }

  #tell(waitingFor: string | null): void {
    this.#options.onProgress?.({ requeued: this.#requeued, round: this.#round, waitingFor });
  }
}

/** Letters by their names. */
type Sent = Map<string, DeadLetter>;

/** Pages of dead letters, in order. */
async function* lettersOf(admin: Admin, filter: DeadFilter): AsyncGenerator<DeadLetter[]> {
  for (let after: DeadPlace | undefined; ;) {
    const query = { ...filter, limit: MOST_AT_ONCE, contents: false };
    const page = await admin.dead({ ...query, ...(after === undefined ? {} : { after }) });
    yield page;
    after = page.at(-1);
    if (page.length < MOST_AT_ONCE || after === undefined) return;
  }
}

function filterOf(choice: DeadChoice): DeadFilter {
  const { all: _all, limit: _limit, letters: _letters, ...filter } = choice;
  return filter;
}

function placeOf({ position, relay, stream, id }: DeadLetter): DeadPlace {
  return { position, relay, stream, id };
}

function nameOf({ relay, stream, id }: Pick<DeadPlace, "relay" | "stream" | "id">): string {
  return JSON.stringify([relay, stream, id]);
}

function* inParts<T>(all: readonly T[], most: number): Generator<T[]> {
  for (let i = 0; i < all.length; i += most) yield all.slice(i, i + most);
}

/** The letters that are meant. Throws for whatever could not be meant so. */
function checkedOptions(options: RedriveOptions): DeadChoice {
  rejectUnknownOptions(OF, options, [...CHOICE, ...OPTIONS]);
  const { perSecond, startAt, rounds, signal, onProgress, by } = options;
  const given = Object.entries(options).filter(([name]) => !OPTIONS.includes(name));
  const choice = deadChoice(OF, Object.fromEntries(given));
  if (typeof perSecond !== "number" || !(perSecond >= 0.01 && perSecond <= 10_000))
    throw invalid("perSecond", `must be a number from 0.01 to 10000, got ${shownValue(perSecond)}`);
  if (startAt !== undefined && (!isDate(startAt) || Number.isNaN(startAt.getTime())))
    throw invalid("startAt", `must be a valid Date, got ${shownValue(startAt)}`);
  if (rounds !== undefined) requireInteger(OF, "rounds", rounds, 1, MAX_ROUNDS);
  if (onProgress !== undefined) requireFunction(OF, "onProgress", onProgress, "Leave it out, or give a function");
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw invalid("signal", "must be an AbortSignal");
  if (by !== undefined) rejectUnknownOptions(`${OF}: by`, by, ["actor", "reason"]);
  return choice;
}

function invalid(field: string, what: string): TxboxError {
  return new TxboxError("invalid_option", `${OF}: ${field} ${what}`, { field, fix: `Give ${field} such a value` });
}
