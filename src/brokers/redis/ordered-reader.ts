import { randomBytes } from "node:crypto";
import { StreamReader } from "./stream-reader.ts";

/**
 * The only reader of its stream in the group. New entries are taken only with the lock in hand, which the server checks
 * as it gives them out; whoever gets the lock first takes all that is pending, in order. So everybody who works on a
 * key has had everything of it that came before and was not done.
 */
export class OrderedReader extends StreamReader {
  #token: string | undefined;
  #loss = new AbortController();

  protected async takeEntries(): Promise<void> {
    const { clock } = this.settings;
    const { signal } = this.stopping;
    const token = await this.#hold();
    this.recovered();
    if (token === undefined) {
      await clock.sleep(Math.min(1000, this.blockMs), signal);
      return;
    }
    await this.takePending({});
    let last = await this.group.lastDelivered();
    while (!signal.aborted && this.#token === token) {
      const entries = await this.group.take(token, await this.room());
      if (entries === undefined) return;
      for (const entry of entries) this.deliver(entry, 0);
      last = entries.at(-1)?.id ?? last;
      if (entries.length === 0) await this.group.waitForMore(this.blocking, last, this.blockMs);
    }
  }

  protected async keepEntries(): Promise<void> {
    const token = this.#token;
    if (token === undefined) return;
    if ((await this.group.renew(token, this.settings.takeOverAfterMs)) === "another's") this.#lost(token);
  }

  protected lossOf(): AbortController {
    return this.#loss;
  }

  protected override async leave(deleteMember: boolean): Promise<void> {
    await super.leave(deleteMember);
    if (this.#token !== undefined) await this.group.letGo(this.#token);
  }

  /** The lock's token, a new one after every gap; undefined when another has the lock. */
  async #hold(): Promise<string | undefined> {
    const ms = this.settings.takeOverAfterMs;
    const token = this.#token;
    if (token !== undefined) {
      const whose = await this.group.renew(token, ms);
      if (whose === "ours") return token;
      if (whose === "another's") this.#lost(token);
    }
    const next = randomBytes(9).toString("base64url");
    if (!(await this.group.acquire(next, ms))) {
      if (this.#token !== undefined) this.#lost(this.#token);
      return undefined;
    }
    this.#token = next;
    if (this.#loss.signal.aborted) {
      // What was given up must be out of the way before it is taken again.
      await this.held.free();
      this.#loss = new AbortController();
    }
    return next;
  }

  #lost(token: string): void {
    if (this.#token !== token) return;
    this.#token = undefined;
    this.#loss.abort();
  }
}
