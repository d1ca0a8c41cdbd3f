import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { DecodedTransactions } from "../../../src/stores/postgres/wal/decoded-transactions.ts";
import { RelaySlot } from "../../../src/stores/postgres/wal/relay-slot.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { commitsLocally, withWaitingCommits } from "../support/waiting-commits.ts";
import { type Streaming, verdict, walScene, writers } from "../support/wal-scene.ts";

const NONE = { lost: 0, doubled: 0, reordered: 0 };
const one = (key: string) => ({ key, n: 1 });
const keysOf = ({ publisher }: Streaming) => publisher.sent.map(({ key }) => key);

/** A pool that sends other statements than it was given, answers later, or gives another answer. */
function changingPool(
  url: string,
  change: (text: string) => string,
  later?: (text: string) => Promise<{ rows: unknown[][] } | undefined> | undefined,
) {
  const pool = openPool(url, 10);
  onTestFinished(() => pool.end());
  const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<unknown>;
  return Object.assign(pool, {
    query: async (config: { text: string }, ...rest: unknown[]) => {
      const result = await query({ ...config, text: change(config.text) }, ...rest);
      return (await later?.(config.text)) ?? result;
    },
  });
}

const isAnchor = (text: string): boolean => text.includes("pg_logical_emit_message");
/** As if there were no audit: not of anchors, and none that finds anything when columns are told again. */
function unauditedPool(url: string) {
  const between = vi.spyOn(DecodedTransactions.prototype, "between");
  onTestFinished(() => between.mockRestore());
  return changingPool(url, withoutAudit, async (text) => {
    const came = between.mock.results.at(-1)?.value as { decoded: number; positions: bigint } | undefined;
    return came !== undefined && text.includes("select n, positions,")
      ? { rows: [[String(came.decoded), String(came.positions), "ready"]] }
      : undefined;
  });
}

const withoutAudit = (text: string): string => text.replace(/ and audit\.n = \d+ and audit\.positions = \d+/, "");

describe.skipIf(!hasPostgres())("a commit that is in the server's log and not in sight", () => {
  const scene = walScene();

  it("is handed out when it is in sight, and holds up no other transaction", async () => {
    await scene.open();
    await commitsLocally(scene.url);
    const store = scene.openStore();
    const outbox = createOutbox({ store });
    const looking = openPool(scene.url, 2);
    onTestFinished(() => looking.end());
    const streaming = await scene.start(store);
    const unseen: string[] = [];
    // What a handler would see.
    streaming.publisher.before = async (messages) => {
      const ids = messages.map(({ id }) => id);
      const { rows } = await looking.query<{ id: string }>("select id from txbox.message where id = any ($1)", [ids]);
      const seen = new Set(rows.map(({ id }) => id));
      unseen.push(...ids.filter((id) => !seen.has(id)));
    };
    await streaming.streams();
    const load = writers(scene.url, store, 2);
    await withWaitingCommits(scene.url, async (commits) => {
      const { done } = await commits.commit(outbox, one("waits"));
      const before = streaming.publisher.sent.length;
      await until(() => streaming.publisher.sent.length > before + 200, { what: "the others" });
      expect(keysOf(streaming)).not.toContain("waits");
      await commits.release();
      await done;
    });
    await until(() => keysOf(streaming).includes("waits"), { what: "what has waited" });
    await load.stop();
    load.committed.set("waits", 1);
    await until(() => verdict(streaming.publisher, load.committed).lost === 0, { what: "the rest" });
    await sleep(300);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    expect(unseen).toEqual([]);
    expect(streaming.lost()).toBeUndefined();
  }, 60_000);

  /** A slot is made while such a commit is on its way, which it does not bring. */
  async function slotBehindACommit(
    url: string,
    run: (streaming: Streaming) => Promise<void>,
    anyway: boolean,
    audited = true,
  ) {
    const open = async (): Promise<pg.Client> => {
      const client = new pg.Client({ connectionString: scene.url });
      await client.connect();
      await client.query("begin; select pg_current_xact_id()");
      return client;
    };
    /** The slot that is being made waits for this transaction. */
    const waitsFor = async (client: pg.Client) => {
      const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
      const waiting = `select 1 from pg_stat_activity where backend_type = 'walsender' and $1 = any (pg_blocking_pids(pid))`;
      await until(async () => (await scene.query(waiting, [rows[0]!.pid])).length > 0, { what: "a slot that waits" });
    };
    await commitsLocally(url);
    const pool = audited ? changingPool(url, (text) => text) : unauditedPool(url);
    const store = createPostgresStore({ client: pool });
    const outbox = createOutbox({ store });
    if (anyway) {
      const make = Object.getOwnPropertyDescriptor(RelaySlot.prototype, "make")!.value as RelaySlot["make"];
      const making = vi.spyOn(RelaySlot.prototype, "make").mockImplementation(async function (this: RelaySlot) {
        return { ...(await make.call(this)), after: 0n };
      });
      onTestFinished(() => making.mockRestore());
    }
    await withWaitingCommits(url, async (commits) => {
      const first = await open();
      const streaming = await scene.start(store);
      await waitsFor(first);
      const second = await open();
      await first.query("commit");
      await waitsFor(second);
      const { done } = await commits.commit(outbox, one("waits"));
      await second.query("commit");
      const isMade = async () => (await scene.slots()).some(({ confirmed }) => confirmed !== null);
      await until(isMade, { what: "the slot" });
      if (anyway) await streaming.streams();
      else await sleep(1500);
      expect(streaming.events.map(({ type }) => type)).toEqual(anyway ? ["stream_started"] : []);
      await commits.release();
      await done;
      await run(streaming);
      await streaming.relay.stop();
      await Promise.all([first.end(), second.end()]);
    });
  }

  it("when a slot is made comes by polling, and the stream begins after it", async () => {
    await scene.open();
    const after = async (streaming: Streaming) => {
      await until(() => keysOf(streaming).includes("waits"), { what: "what has waited" });
      await streaming.streams();
      await sleep(500);
      expect(keysOf(streaming)).toEqual(["waits"]);
    };
    await slotBehindACommit(scene.url, after, false);
  }, 60_000);

  it("when a slot is made would be found by the audit, if the stream had begun before it", async () => {
    await scene.open();
    const after = async (streaming: Streaming) => {
      await scene.enqueue(scene.openStore(), [one("next")]);
      await until(() => keysOf(streaming).includes("waits"), { what: "what has waited", timeoutMs: 20_000 });
      expect(streaming.lost()).toMatch(/brought \d+ of \d+ messages/);
      await sleep(500);
      expect(streaming.publisher.sent).toHaveLength(2);
      expect(new Set(keysOf(streaming))).toEqual(new Set(["next", "waits"]));
    };
    await slotBehindACommit(scene.url, after, true);
  }, 60_000);

  it("would be lost without both: this suite would see it", async () => {
    await scene.open();
    const after = async (streaming: Streaming) => {
      await scene.enqueue(scene.openStore(), [one("next")]);
      await until(() => keysOf(streaming).includes("next"), { what: "the next one" });
      await sleep(2000);
      expect(keysOf(streaming)).toEqual(["next"]);
    };
    await slotBehindACommit(scene.url, after, true, false);
  }, 60_000);
});

describe.skipIf(!hasPostgres())("anchors of a stream", () => {
  const scene = walScene();
  const isSettled = (store: { admin: { relays(): Promise<{ pending: number }[]> } }) =>
    until(async () => (await store.admin.relays())[0]?.pending === 0, { what: "the anchors", timeoutMs: 10_000 });

  it("would step over what a changed publication leaves out, if they did not count: this suite would see it", async () => {
    await scene.open();
    const store = createPostgresStore({ client: unauditedPool(scene.url) });
    const streaming = await scene.start(store);
    await streaming.streams();
    await scene.query("alter publication txbox set (publish = 'update')");
    await scene.enqueue(store, series("hidden", 10));
    await scene.query("alter publication txbox set (publish = 'insert')");
    await scene.enqueue(store, series("k", 5));
    await until(() => streaming.publisher.sent.length >= 5, { what: "the stream" });
    await sleep(3000);
    expect(
      verdict(
        streaming.publisher,
        new Map([
          ["k", 5],
          ["hidden", 10],
        ]),
      ).lost,
    ).toBe(10);
    await streaming.relay.stop();
  }, 60_000);

  it("go on though each answer comes long after the mark", async () => {
    await scene.open();
    let anchors = 0;
    const late = async (text: string) => {
      if (!isAnchor(text)) return undefined;
      anchors++;
      return sleep(400, undefined);
    };
    const store = createPostgresStore({ client: changingPool(scene.url, (text) => text, late) });
    const streaming = await scene.start(store);
    await streaming.streams();
    const load = writers(scene.url, store, 2);
    await until(() => anchors > 6, { what: "anchors" });
    await load.stop();
    await isSettled(store);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    expect(streaming.lost()).toBeUndefined();
    await streaming.relay.stop();
  }, 60_000);

  it("reach an idle server's log at once, where commits are asynchronous too", async () => {
    const first = await scene.open();
    await scene.query(`alter database "${new URL(scene.url).pathname.slice(1)}" set synchronous_commit = 'off'`);
    const store = scene.openStore();
    const streaming = await scene.start(store);
    await streaming.streams();
    for (let n = 1; n <= 3; n++) {
      await scene.enqueue(first, [{ key: "k", n }]);
      await until(() => streaming.publisher.sent.length === n, { what: "the stream" });
      await isSettled(store);
    }
    expect(streaming.lost()).toBeUndefined();
  }, 60_000);

  it("count only what came since the last one, beside a transaction that is open for long", async () => {
    await scene.open();
    const statements: { text: string; values: unknown[] }[] = [];
    const pool = openPool(scene.url, 10);
    onTestFinished(() => pool.end());
    const query = pool.query.bind(pool) as (config: unknown) => Promise<unknown>;
    const noting = (config: { text: string; values?: unknown[] }) => {
      if (config.text.includes("audit as materialized"))
        statements.push({ text: config.text, values: config.values ?? [] });
      return query(config);
    };
    const store = createPostgresStore({ client: Object.assign(pool, { query: noting }) });
    const streaming = await scene.start(store);
    await streaming.streams();
    const open = new pg.Client({ connectionString: scene.url });
    open.on("error", () => undefined);
    await open.connect();
    await open.query("begin; select pg_current_xact_id()");
    for (let round = 0; round < 10; round++) await scene.enqueue(store, series(`k${round}`, 500));
    await until(() => streaming.publisher.sent.length === 5000, { what: "the stream" });
    await isSettled(store);
    await scene.query("vacuum analyze txbox.message");
    await scene.enqueue(store, series("last", 5));
    const before = statements.length;
    await until(() => streaming.publisher.sent.length === 5005, { what: "the stream" });
    await isSettled(store);
    const last = statements.slice(before).at(-1)!;
    const [row] = await scene.query<{ "QUERY PLAN": [{ Plan: Plan }] }>(
      `explain (analyze, format json) ${last.text}`,
      last.values,
    );
    expect(readOf(row!["QUERY PLAN"][0].Plan)).toBeLessThan(100);
    await open.query("rollback");
    await open.end();
    await streaming.relay.stop();
  }, 60_000);
});

interface Plan {
  readonly "Relation Name"?: string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly Plans?: readonly Plan[];
}

/** Rows of the log that were looked at. */
function readOf(plan: Plan): number {
  const below = (plan.Plans ?? []).reduce((sum, one) => sum + readOf(one), 0);
  if (plan["Relation Name"]?.startsWith("message") !== true) return below;
  return below + (plan["Actual Rows"] + (plan["Rows Removed by Filter"] ?? 0)) * plan["Actual Loops"];
}
