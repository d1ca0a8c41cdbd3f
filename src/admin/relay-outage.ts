import type { Admin } from "../core/contracts.ts";
import { isLive } from "../core/live-processes.ts";

/** What a relay did within this time tells of its target. */
const LATELY_MS = 60_000;
/** An answer counts for so long. */
const KNOWN_MS = 2000;

/** Whether relays can deliver at this moment, asked of their store now and then. */
export class RelayOutage {
  readonly #admin: Pick<Admin, "relays" | "samples">;
  readonly #known = new Map<string, { readonly at: number; readonly why: string | undefined }>();

  constructor(admin: Pick<Admin, "relays" | "samples">) {
    this.#admin = admin;
  }

  /** Why one of them delivers nothing; undefined: all do, as far as is known. */
  async of(relays: Iterable<string>): Promise<string | undefined> {
    for (const relay of new Set(relays)) {
      const known = this.#known.get(relay);
      const isFresh = known !== undefined && performance.now() - known.at < KNOWN_MS;
      const why = isFresh ? known.why : await this.#look(relay);
      if (!isFresh) this.#known.set(relay, { at: performance.now(), why });
      if (why !== undefined) return why;
    }
    return undefined;
  }

  async #look(relay: string): Promise<string | undefined> {
    const info = (await this.#admin.relays()).find(({ name }) => name === relay);
    if (info === undefined) return `there is no relay "${relay}"`;
    if (info.paused) return `relay "${relay}" is paused`;
    if (!info.lanes.some(isLive)) return `no process of relay "${relay}" runs`;
    const samples = await this.#admin.samples({ relay, since: new Date(Date.now() - LATELY_MS) });
    const last = samples.at(-1);
    if (last === undefined || last.unavailable === 0 || last.published > 0) return undefined;
    return `the target of relay "${relay}" is out${last.lastError === null ? "" : `: ${last.lastError}`}`;
  }
}
