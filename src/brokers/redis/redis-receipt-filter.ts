import {
  clock,
  inBatches,
  integer,
  LATE,
  readOptions,
  required,
  settledWithin,
  type OptionSpec,
  type OptionSpecs,
} from "../../adapter/index.ts";
import type { Clock, Receipt, ReceiptFilter } from "../../core/contracts.ts";
import { requireName } from "../../core/options.ts";
import { requireRedisClient, type RedisClient } from "./redis-client.ts";
import { RedisLink } from "./redis-link.ts";
import { REMEMBER } from "./redis-scripts.ts";

export interface RedisReceiptFilterOptions {
  /** Of ioredis or node-redis: it says where to connect. It stays yours to close. */
  client: RedisClient;
  /** How long a message is remembered. Default 1 hour. */
  ttlMs?: number;
  /** How long an answer is waited for; then the ledger is asked. Default 50 ms. */
  timeoutMs?: number;
  /** Begins every key. Inboxes on different databases need different ones. Default "txbox:receipt:". */
  prefix?: string;
  clock?: Clock;
}

export interface RedisReceiptFilter extends ReceiptFilter {
  close(): Promise<void>;
}

/** After a failure Redis is not asked for so long: the ledger alone is quicker than a Redis that does not answer. */
const PAUSE_MS = 1000;
const ANSWER_MS = 2000;
const MOST = 1000;

const PREFIX: OptionSpec<string> = {
  read(of, name, value = "txbox:receipt:") {
    requireName(of, name, value);
    return value as string;
  },
};

const OPTIONS = {
  client: required(requireRedisClient),
  ttlMs: integer(1, Number.MAX_SAFE_INTEGER, 3_600_000),
  timeoutMs: integer(1, 60_000, 50),
  prefix: PREFIX,
  clock,
} satisfies OptionSpecs<RedisReceiptFilterOptions>;

/**
 * Remembers in Redis which messages were processed, so that duplicates need no transaction. It is never the authority:
 * it is told after the commit, and what it does not know, or cannot say in time, the ledger decides.
 */
export function createRedisReceiptFilter(options: RedisReceiptFilterOptions): RedisReceiptFilter {
  const { client, ttlMs, timeoutMs, prefix, clock } = readOptions("createRedisReceiptFilter", options, OPTIONS);
  const link = new RedisLink(client);
  let news: string[] = [];
  let pausedUntil = 0;
  let telling: Promise<void> | undefined;

  const keyOf = ({ consumer, messageId }: Receipt, status: string): string =>
    `${prefix}${encodeURIComponent(consumer)}:${status}:${messageId}`;
  const isPaused = (): boolean => clock.monotonic() < pausedUntil;
  const pause = (): void => {
    pausedUntil = clock.monotonic() + PAUSE_MS;
  };

  const ask = inBatches({ most: MOST }, async (keys: readonly string[]): Promise<boolean[]> => {
    const asking = link.command(["MGET", ...keys], ANSWER_MS) as Promise<unknown[]>;
    const reply = await settledWithin(asking, timeoutMs).catch(() => LATE);
    if (typeof reply !== "symbol") return reply.map((one) => one != null);
    pause();
    return keys.map(() => false);
  });

  async function tell(): Promise<void> {
    while (news.length > 0) {
      const keys = news.splice(0, MOST);
      try {
        await link.run(REMEMBER, keys, [String(ttlMs)]);
      } catch {
        // Forgotten: the ledger knows.
        pause();
        news = [];
      }
    }
    telling = undefined;
  }

  return {
    seen(receipt, status) {
      return isPaused() ? Promise.resolve(false) : ask(keyOf(receipt, status));
    },
    remember(receipt, status) {
      if (isPaused()) return;
      news.push(keyOf(receipt, status));
      telling ??= new Promise<void>((resolve) => setImmediate(resolve)).then(tell);
    },
    async close() {
      await telling;
      link.close();
    },
  };
}
