import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import type { PostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type RelayProcess, relayProcess } from "../support/relay-process.ts";
import { walScene, writers } from "../support/wal-scene.ts";

const LEASE_MS = 1000;

describe.skipIf(!hasPostgres())("a process that streams and loses its lease", () => {
  const scene = walScene();

  const children: RelayProcess[] = [];
  afterEach(async () => {
    for (const child of children) child.resume();
    await Promise.all(children.splice(0).map((child) => child.kill()));
  });

  const start = async (): Promise<RelayProcess> => {
    const child = relayProcess({ url: scene.url, name: "r", source: "stream", leaseMs: LEASE_MS });
    children.push(child);
    await child.waitForLine("ready");
    return child;
  };
  const told = (child: RelayProcess): string[] =>
    child.stdout.flatMap((line) => /"type":"(stream_started|stream_lost|lease_lost)"/.exec(line)?.[1] ?? []);
  const sourceOf = async (store: PostgresStore): Promise<string[]> =>
    (await store.wal.status()).relays[0]!.processes.map(({ source }) => source);

  it("to another one says so, and says that it streams when it does again", async () => {
    const store = await scene.open();
    const first = await start();
    await until(() => told(first).includes("stream_started"), { what: "the stream" });
    const second = await start();
    const load = writers(scene.url, store, 2);
    await until(() => first.sent().length > 50, { what: "messages" });
    const lostBefore = first.events("stream_lost").length;
    first.pause();
    await until(() => told(second).includes("stream_started"), { what: "the stream of the other", timeoutMs: 20_000 });
    first.resume();
    await until(() => first.events("stream_lost").length > lostBefore, { what: "its loss", timeoutMs: 10_000 });
    const lost = first.events("stream_lost").at(-1)!["error"];
    await until(async () => (await sourceOf(store)).some((source) => source.includes(String(lost))), {
      what: "the loss in the status",
      timeoutMs: 10_000,
    });
    // The other one dies, and the first one streams again.
    await second.kill();
    const before = first.sent().length;
    await until(() => told(first).at(-1) === "stream_started", { what: "its stream", timeoutMs: 20_000 });
    await until(() => first.sent().length > before + 50, { what: "messages", timeoutMs: 20_000 });
    await until(async () => (await sourceOf(store)).includes("stream"), { what: "the status", timeoutMs: 10_000 });
    await load.stop();
    const ids = () => new Set([...first.sent(), ...second.sent()].map(({ id }) => id));
    await until(() => ids().size >= load.total, { what: "the rest", timeoutMs: 20_000 });
    expect(ids().size).toBe(load.total);
  }, 90_000);

  it("that no other process wants streams again", async () => {
    const store = await scene.open();
    const only = await start();
    await until(() => told(only).includes("stream_started"), { what: "the stream" });
    const load = writers(scene.url, store, 2);
    await until(() => only.sent().length > 50, { what: "messages" });
    only.pause();
    await sleep(2 * LEASE_MS);
    only.resume();
    const before = only.sent().length;
    await until(() => only.sent().length > before + 50, { what: "messages", timeoutMs: 20_000 });
    const streams = () => told(only).filter((type) => type !== "lease_lost");
    await until(() => streams().at(-1) === "stream_started", { what: "the stream", timeoutMs: 20_000 });
    // Each loss that is told is followed by the return.
    expect(streams()).toEqual(streams().map((_, i) => (i % 2 === 0 ? "stream_started" : "stream_lost")));
    await load.stop();
    const ids = () => new Set(only.sent().map(({ id }) => id));
    await until(() => ids().size >= load.total, { what: "the rest", timeoutMs: 20_000 });
    await until(async () => (await sourceOf(store)).includes("stream"), { what: "the status", timeoutMs: 10_000 });
  }, 60_000);
});
