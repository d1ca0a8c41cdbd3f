import { isDeepStrictEqual } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { mustRun } from "../../harness/run-command.ts";
import { requireCommand } from "../../harness/require-command.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type Numbered, outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";
import { firstsOf, upTo } from "../support/recording-publisher.ts";
import { type ChildSent, relayProcess, type RelayProcess } from "../support/relay-process.ts";

const KEYS = Array.from({ length: 40 }, (_, i) => `key-${i}`);
const LEASE_MS = 1500;

describe.skipIf(!hasPostgres())("relays that share the lanes", () => {
  let database: OutboxDatabase;
  let children: RelayProcess[];
  let written: number;
  let writing: AbortController;
  let writer: Promise<void>;
  const odd: string[] = [];

  beforeEach(async () => {
    database = await outboxDatabase();
    children = [];
    written = 0;
    writing = new AbortController();
    writer = Promise.resolve();
    odd.length = 0;
  });
  afterEach(async () => {
    writing.abort();
    await writer;
    await Promise.all(children.map((child) => child.kill()));
    await database[Symbol.asyncDispose]();
  });

  async function join(env: Record<string, string> = {}, leaseMs = LEASE_MS): Promise<RelayProcess> {
    const child = relayProcess({ url: database.url, leaseMs, batchSize: 50 }, env);
    children.push(child);
    await child.waitForLine("ready");
    return child;
  }

  /** Lanes by owner, as the database sees it; every lane exists once, whatever happens. */
  async function owners(): Promise<Map<string, number>> {
    const rows = await database.query<{ owner: string | null; lanes: number; live: boolean }>(
      `select c.owner, count(*)::int as lanes, c.owner is not null and c.lease_until > clock_timestamp() as live
       from txbox.lane l join txbox.cursor c on c.id = l.cursor_id where l.relay = 'orders' group by 1, 3`,
    );
    const total = rows.reduce((sum, { lanes }) => sum + lanes, 0);
    if (total !== 64) odd.push(`${total} lanes`);
    const live = new Map<string, number>();
    for (const { owner, lanes, live: alive } of rows)
      if (alive && owner !== null) live.set(owner, (live.get(owner) ?? 0) + lanes);
    return live;
  }

  const shares = async (): Promise<number[]> => [...(await owners()).values()].toSorted((a, b) => b - a);

  /** All lanes are owned, by so many processes, none with more than its share. */
  function balanced(processes: number, timeoutMs = 30_000): Promise<unknown> {
    const fair = (lanes: readonly number[]): boolean =>
      lanes.length === processes &&
      lanes.reduce((a, b) => a + b, 0) === 64 &&
      (lanes[0] ?? 0) <= Math.ceil(64 / processes);
    return until(async () => fair(await shares()), {
      what: `lanes shared by ${processes}`,
      timeoutMs,
      intervalMs: 50,
    }).catch(async (error: unknown) => {
      throw new Error(`${String(error)}; they are ${(await shares()).join(" + ")}`, { cause: error });
    });
  }

  /** Keeps enqueueing, so that lanes change hands under load. */
  function write(): void {
    writer = (async () => {
      while (!writing.signal.aborted) {
        written++;
        await database.enqueue(KEYS.map((key): Numbered => ({ key, n: written })));
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    })();
  }

  async function everythingArrived(): Promise<ChildSent[]> {
    writing.abort();
    await writer;
    const sent = () => children.flatMap((child) => child.sent());
    await until(() => new Set(sent().map(({ id }) => id)).size === written * KEYS.length, {
      what: "all messages",
      timeoutMs: 60_000,
    });
    // The processes share one clock, so the time of printing orders what different ones sent.
    return sent().toSorted((a, b) => a.at - b.at);
  }

  it("join, leave and die: 64 lanes, each owned once, and order holds", async () => {
    write();
    await join();
    await balanced(1);
    const second = await join();
    await balanced(2);
    const third = await join();
    const joinedAt = performance.now();
    await balanced(3);
    const joinMs = performance.now() - joinedAt;
    second.signal("SIGTERM");
    await second.waitForExit();
    const leftAt = performance.now();
    await balanced(2);
    // A clean stop frees the lanes at once: no process waited for the lease and then the same time again.
    expect(performance.now() - leftAt).toBeLessThan(2 * LEASE_MS + joinMs);
    await third.kill();
    await balanced(1);
    const sent = await everythingArrived();
    for (const key of KEYS) expect(firstsOf(sent, key)).toEqual(upTo(written));
    expect(odd).toEqual([]);
  });

  it("idle relays share as well, and one cursor each is left in the end", async () => {
    for (let i = 0; i < 4; i++) await join();
    await balanced(4);
    for (const child of children.slice(1)) child.signal("SIGTERM");
    await balanced(1);
    await until(async () => (await database.value("select count(*)::int from txbox.cursor")) === 1, {
      what: "one cursor",
    });
  });

  it("five that come and go at random", async () => {
    write();
    for (let i = 0; i < 3; i++) await join();
    for (let round = 0; round < 6; round++) {
      const victim = children.filter(({ running }) => running)[round % 3];
      if (round % 2 === 0) await victim?.kill();
      else victim?.signal("SIGTERM");
      await join();
      await owners();
    }
    await until(async () => (await shares()).reduce((a, b) => a + b, 0) === 64, { what: "all lanes owned" });
    const sent = await everythingArrived();
    for (const key of KEYS) expect(firstsOf(sent, key)).toEqual(upTo(written));
    expect(odd).toEqual([]);
  });

  it("one whose clock is an hour wrong neither steals lanes nor loses them", async () => {
    const faketime = await requireCommand("faketime", { apt: "faketime" });
    const { stdout } = await mustRun(faketime, ["-f", "+1h", "env"]);
    const env = Object.fromEntries(
      stdout
        .split("\n")
        .map((line) => /^(LD_PRELOAD|FAKETIME)=(.*)$/.exec(line))
        .flatMap((match) => (match === null ? [] : [[match[1] ?? "", match[2] ?? ""]])),
    );
    for (const wrong of ["+3600", "-3600"]) {
      write();
      // Far less than an hour, and far more than a busy machine keeps a process waiting.
      const right = await join({}, 30_000);
      const odds = await join({ ...env, FAKETIME: wrong }, 30_000);
      await balanced(2);
      const epochs = () => database.query("select id, owner, epoch from txbox.cursor order by id");
      // A process that was given lanes loads anew once, which may come a moment after they are shared.
      let before = await epochs();
      const isCalm = async (): Promise<boolean> => {
        const earlier = before;
        before = await epochs();
        return isDeepStrictEqual(before, earlier);
      };
      await new Promise((resolve) => setTimeout(resolve, 1000));
      await until(isCalm, { what: "the end of the change of hands", intervalMs: 1000 });
      const watch = performance.now() + LEASE_MS * 3;
      while (performance.now() < watch) {
        expect(await shares()).toEqual([32, 32]);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      // No process took anything over: no epoch has risen.
      expect(await epochs()).toEqual(before);
      const skew = Number(odds.sent().at(-1)?.at) - Number(right.sent().at(-1)?.at);
      expect(Math.abs(skew)).toBeGreaterThan(3_000_000);
      await everythingArrived();
      const ids = children.flatMap((child) => child.sent()).map(({ id }) => id);
      expect(ids).toHaveLength(written * KEYS.length);
      for (const child of children) {
        child.signal("SIGTERM");
        await child.waitForExit();
      }
      children = [];
      writing = new AbortController();
      await database.store.admin.drop("orders");
      await database.query("truncate txbox.message");
      written = 0;
    }
  });
});
