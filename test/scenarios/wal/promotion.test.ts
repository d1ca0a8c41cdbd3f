import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { describe, expect, it } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import {
  cutReplication,
  failoverCluster,
  type FailoverOptions,
  failoverWriters,
  promoted,
  type Row,
  slotIsKept,
} from "../support/failover-cluster.ts";
import { type ChildSent, type RelayProcess, relayProcess } from "../support/relay-process.ts";

const LEASE_MS = 1500;
/** What went out so long before the moment that is lost with a server may go out again: anchors come every 150 ms. */
const UNSETTLED_MS = 2000;

interface Case extends FailoverOptions {
  /** Of the process that streams, at the moment of the failover. */
  readonly reader: "lives" | "is killed";
}

const CASES: readonly Case[] = [
  { replication: "synchronous", reader: "lives", slots: "kept on the standby" },
  { replication: "synchronous", reader: "is killed", slots: "on the primary only" },
  { replication: "asynchronous", reader: "lives", slots: "on the primary only" },
  { replication: "asynchronous", reader: "is killed", slots: "kept on the standby" },
];
const OTHER_CASES: readonly Case[] = [
  { replication: "synchronous", reader: "lives", slots: "on the primary only" },
  { replication: "synchronous", reader: "is killed", slots: "kept on the standby" },
  { replication: "asynchronous", reader: "lives", slots: "kept on the standby" },
  { replication: "asynchronous", reader: "is killed", slots: "on the primary only" },
];

const streams = (process: RelayProcess, after = 0): Promise<unknown> =>
  until(() => process.events("stream_started").length > after, { what: "the stream", timeoutMs: 40_000 });

describe.skipIf(!hasPostgres())("a standby is promoted while a relay streams", () => {
  it.each(isLong ? [...CASES, ...OTHER_CASES] : CASES)(
    "$replication, a reader that $reader, a slot $slots",
    async (which) => {
      const { replication, reader, slots } = which;
      const failoverSlot = slots === "kept on the standby";
      const { primary, standby, proxy, url, pool, outbox } = await failoverCluster(which);
      const start = () => relayProcess({ url, name: "r", source: "stream", leaseMs: LEASE_MS, failoverSlot });
      const first = start();
      const processes = [first];
      let there: pg.Pool | undefined;
      try {
        await first.waitForLine("ready");
        await streams(first);
        if (reader === "is killed") {
          processes.push(start());
          await processes[1]!.waitForLine("ready");
        }
        const load = failoverWriters(url, outbox);
        if (failoverSlot) await slotIsKept(pool, standby);
        await until(() => load.told.length > 100, { what: "commits", timeoutMs: 20_000 });
        expect(first.events("stream_lost")).toEqual([]);
        const lostSince = Date.now();
        if (replication === "asynchronous") {
          await cutReplication(pool);
          const before = load.told.length;
          await until(() => load.told.length > before + 50, { what: "commits that will be lost", timeoutMs: 20_000 });
          await sleep(400);
        }
        const toldBefore = load.told.length;
        await Promise.all([primary.kill(), reader === "is killed" ? first.kill() : undefined]);
        there = await promoted(standby);
        proxy.leadTo(Number(new URL(standby.url).port));
        proxy.cut();
        await until(() => load.told.length > toldBefore + 100, {
          what: "commits on the new primary",
          timeoutMs: 60_000,
        });
        const last = processes.at(-1)!;
        // It says that the stream was lost, and that it is back.
        await streams(last, last === first ? 1 : 0);
        expect(last === first ? first.events("stream_lost").length : 1).toBeGreaterThan(0);
        // A slot that is kept on a standby is never ahead of the row, if commits wait for that standby.
        const from = last.events("stream_started").at(-1)!["from"];
        const expected = replication === "asynchronous" ? ["resume", "scan"] : [failoverSlot ? "resume" : "scan"];
        expect(expected).toContain(from);
        const more = load.told.length;
        await until(() => load.told.length > more + 50, { what: "commits that are streamed", timeoutMs: 20_000 });
        const { wal } = createPostgresStore({ client: there });
        const sources = async () => (await wal.status()).relays[0]!.processes.map(({ source }) => source);
        const isTold = async () => (await sources()).filter((source) => source === "stream").length === 1;
        await until(isTold, { what: "the stream in the status", timeoutMs: 10_000 });
        await load.stop();

        const { rows } = await there.query<Row>("select key, n, id from business order by key, n");
        const sent = () => processes.flatMap((one) => one.sent());
        const missing = () => {
          const ids = new Set(sent().map(({ id }) => id));
          return rows.filter(({ id }) => !ids.has(id));
        };
        await until(() => missing().length === 0, { what: "all that is committed", timeoutMs: 30_000 }).catch(
          () => undefined,
        );
        expect(missing()).toEqual([]);
        check(which, { rows, sent: sent(), told: load.told, lostSince });
      } finally {
        await Promise.all(processes.map((one) => one.kill()));
        await Promise.all([pool.end(), there?.end()]);
        await proxy.close();
        await standby[Symbol.asyncDispose]();
        await primary.stop();
      }
    },
    150_000,
  );
});

interface Outcome {
  readonly rows: readonly Row[];
  readonly sent: readonly ChildSent[];
  readonly told: readonly Row[];
  /** Nothing that was settled before is lost. */
  readonly lostSince: number;
}

function check({ replication }: Case, { rows, sent, told, lostSince }: Outcome): void {
  const committed = new Set(rows.map(({ id }) => id));
  const byTime = sent.toSorted((a, b) => a.at - b.at);
  const first = new Map<string, number>();
  for (const [i, { id }] of byTime.entries()) if (!first.has(id)) first.set(id, i);
  for (const [key, its] of Map.groupBy(rows, (row) => row.key)) {
    const order = its.map(({ id }) => first.get(id)!);
    expect(order, `first deliveries of ${key}`).toEqual(order.toSorted((a, b) => a - b));
  }
  const undone = told.filter(({ id }) => !committed.has(id));
  const ghosts = [...first.keys()].filter((id) => !committed.has(id));
  // Commits that wait for a standby are not lost, and nothing goes out of one that does.
  const isLossy = replication === "asynchronous";
  expect({ undone: undone.length > 0, ghosts: !isLossy && ghosts.length > 0 }).toEqual({
    undone: isLossy,
    ghosts: false,
  });
  // What was settled on the new primary as well does not come again.
  const times = new Map<string, number>();
  for (const { id } of sent) times.set(id, (times.get(id) ?? 0) + 1);
  for (const [id, count] of times) {
    if (count === 1) continue;
    expect(count).toBe(2);
    expect(byTime[first.get(id)!]!.at).toBeGreaterThan(lostSince - UNSETTLED_MS);
  }
}
