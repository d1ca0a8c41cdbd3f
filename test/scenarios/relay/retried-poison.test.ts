import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase } from "../support/outbox-database.ts";
import { firstsOf, upTo } from "../support/recording-publisher.ts";
import { relayProcess, type RelayProcess } from "../support/relay-process.ts";

/** Deaths until messages of failed keys are tried one by one, and with this one in hand, and one more for a busy machine. */
const MOST_DEATHS = 8;

describe.skipIf(!hasPostgres())("a message that fails, and then kills the process at each retry", () => {
  it.each([
    ["of a key of its own, while others get messages", "others", 0],
    ["of a key that gets more messages", "own", 0],
    ["beside two hundred keys that fail as well", "others", 200],
  ] as const)(
    "is found while traffic goes on: %s",
    async (_, traffic, failing) => {
      await using database = await outboxDatabase();
      const children: RelayProcess[] = [];
      let stopped = false;
      const keepRunning = (): void => {
        const url = database.url;
        const child = relayProcess({ url, mode: "die-on-retry", leaseMs: 1000, backoffMs: 300, failing: "failing-" });
        children.push(child);
        void child.exited.then(() => stopped || keepRunning());
      };
      const deaths = () => children.filter(({ running }) => !running).length;
      await database.enqueue(Array.from({ length: failing }, (__, n) => ({ key: `failing-${n}`, n })));
      await database.enqueue([{ key: "p", n: 1, poison: true }]);
      keepRunning();
      let n = 0;
      const found = new AbortController();
      const write = async (): Promise<void> => {
        while (!found.signal.aborted) {
          n++;
          const keys = traffic === "own" ? ["p", "a"] : ["a", "b", "c"];
          await database.enqueue(keys.map((key) => ({ key, n: key === "p" ? n + 1 : n })));
          await sleep(20);
        }
      };
      const writing = write();
      try {
        const isDead = async () => (await database.store.admin.dead({ relay: "orders", key: "p" })).length > 0;
        await until(isDead, { what: "the dead letter", timeoutMs: 120_000, intervalMs: 100 });
        found.abort();
        await writing;
        expect(deaths()).toBeLessThanOrEqual(MOST_DEATHS);
        const sent = () => children.flatMap((child) => child.sent());
        await until(() => firstsOf(sent(), "a").length === n, { what: "the rest", timeoutMs: 60_000, intervalMs: 100 });
        expect(firstsOf(sent(), "a")).toEqual(upTo(n));
        const dead = await database.store.admin.dead({ relay: "orders" });
        expect(dead.filter(({ lastError }) => /died/.test(lastError ?? "")).map(({ key }) => key)).toEqual(["p"]);
      } finally {
        stopped = true;
        found.abort();
        await writing;
        await Promise.all(children.map((child) => child.kill()));
      }
    },
    200_000,
  );
});
