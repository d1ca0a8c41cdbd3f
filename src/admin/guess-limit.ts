import { createHash } from "node:crypto";
import { isIPv6 } from "node:net";
import { PageFailure } from "./page-failure.ts";
import { RateLimit } from "./rate-limit.ts";

const ALLOWANCE = { perSecond: 0.2, burst: 10 };
const MOST_ADDRESSES = 10_000;
const MOST_KNOWN = 1000;

/**
 * Wrong tokens and sessions, by the address that they come from: after ten of them nothing is compared for a while. What
 * is wrong once more is no new guess, so an old session or a forgotten script locks no person out.
 */
export class GuessLimit {
  readonly #limits = new Map<string, RateLimit>();
  readonly #wrong = new Set<string>();
  readonly #sessions = new Set<string>();

  /** Whether a token is the right one. Throws 429 when too many wrong ones came from there. */
  token(from: string | undefined, guess: string, isRight: () => boolean): boolean {
    return this.#compare(from, nameOf(guess), isRight);
  }

  /** The same for a session, which is made of the token. One that was right before is not held up by guesses of others. */
  session(from: string | undefined, guess: string, isRight: () => boolean): boolean {
    const name = nameOf(guess);
    if (this.#sessions.has(name)) return isRight();
    if (!this.#compare(from, name, isRight)) return false;
    remember(this.#sessions, name, MOST_KNOWN);
    return true;
  }

  #compare(from: string | undefined, name: string, isRight: () => boolean): boolean {
    const address = addressOf(from);
    const retryAfterMs = this.#limits.get(address)?.wait() ?? 0;
    if (retryAfterMs > 0) throw new PageFailure(429, "Too many tokens were tried", { retryAfterMs });
    if (isRight()) return true;
    if (!this.#wrong.has(name)) {
      remember(this.#wrong, name, MOST_KNOWN);
      this.#limitOf(address).take();
    }
    return false;
  }

  #limitOf(address: string): RateLimit {
    const known = this.#limits.get(address);
    if (known !== undefined) return known;
    const limit = new RateLimit(ALLOWANCE);
    dropOldest(this.#limits, MOST_ADDRESSES);
    this.#limits.set(address, limit);
    return limit;
  }
}

/** A caller has all addresses of an IPv6 network of 64 bits. Those that are not known share one limit. */
function addressOf(from: string | undefined): string {
  const plain = (from ?? "").replace(/^::ffff:(?=\d+\.)/i, "");
  if (!isIPv6(plain)) return plain;
  const [head = "", tail] = plain.split("%")[0]!.split("::");
  const groups = (text: string): string[] => (text === "" ? [] : text.split(":"));
  const [left, right] = [groups(head), groups(tail ?? "")];
  const zeros = tail === undefined ? 0 : 8 - left.length - right.length;
  return [...left, ...Array<string>(Math.max(0, zeros)).fill("0"), ...right].slice(0, 4).join(":");
}

function nameOf(guess: string): string {
  return createHash("sha256").update(guess).digest("base64");
}

function remember(names: Set<string>, name: string, most: number): void {
  dropOldest(names, most);
  names.add(name);
}

function dropOldest(all: { size: number; keys(): Iterator<string>; delete(key: string): boolean }, most: number): void {
  if (all.size < most) return;
  const oldest = all.keys().next();
  if (oldest.done !== true) all.delete(oldest.value);
}
