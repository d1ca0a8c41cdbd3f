import { randomBytes } from "node:crypto";
import { StreamReader } from "./stream-reader.ts";

/**
 * The only reader of its stream in the group. New entries are taken only with the lock in hand, which the server checks
 * as it gives them out. The process that gets the lock first takes all that is pending, in order. So a process that
 * works on a key has first had everything of that key that came before and was not done.
 */
export class OrderedReader extends StreamReader {
  /** Our name in the lock, while it is ours. */
  #owner: string | undefined;
  #turn = 0;
  #loss = new AbortController();

  protected async takeEntries(): Promise<void> {
    const { clock } = this.settings;
    const { signal } = this.stopping;
    const owner = await this.#hold();
    this.recovered();
    if (owner === undefined) {
      await clock.sleep(Math.min(1000, this.blockMs), signal);
      return;
    }
    const token = owner + this.#turn;
    await this.takePending({});
    let last = await this.group.lastDelivered();
    while (!signal.aborted && this.#owner === owner) {
      const entries = await this.group.take(this.blocking, token, await this.room());
      if (entries === undefined) return;
      await this.deliver(entries);
      last = entries.at(-1)?.id ?? last;
      if (entries.length === 0) await this.group.waitForMore(this.blocking, last, this.blockMs);
    }
  }

  protected async keepEntries(): Promise<void> {
    const owner = this.#owner;
    if (owner === undefined) return;
    if ((await this.group.renew(owner, this.settings.takeOverAfterMs)) === "another's") this.#lost(owner);
  }

  protected lossOf(): AbortController {
    return this.#loss;
  }

  protected override async leave(deleteMember: boolean): Promise<void> {
    await super.leave(deleteMember);
    if (this.#owner !== undefined) await this.group.letGo(this.#owner);
  }

  /**
   * Our name in the lock, a new one after every gap; undefined when another process has the lock. Each time with a new
   * turn: an earlier request may reach the server late, and no process would handle what it took.
   */
  async #hold(): Promise<string | undefined> {
    const ms = this.settings.takeOverAfterMs;
    const owner = this.#owner;
    const turn = String(++this.#turn);
    if (owner !== undefined) {
      const whose = await this.group.renew(owner, ms, turn);
      if (whose === "ours") return owner;
      if (whose === "another's") this.#lost(owner);
    }
    const next = `${randomBytes(9).toString("base64url")}.`;
    if (!(await this.group.acquire(next + turn, ms))) {
      if (this.#owner !== undefined) this.#lost(this.#owner);
      return undefined;
    }
    this.#owner = next;
    if (this.#loss.signal.aborted) {
      // What was given up must be out of the way before it is taken again.
      await this.held.free();
      this.#loss = new AbortController();
    }
    return next;
  }

  #lost(owner: string): void {
    if (this.#owner !== owner) return;
    this.#owner = undefined;
    this.#loss.abort();
  }
}
