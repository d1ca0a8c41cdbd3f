import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import type { PostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { series } from "../support/outbox-database.ts";
import { verdict, walScene } from "../support/wal-scene.ts";

/** The log of a second installation has the same columns. */
describe.skipIf(!hasPostgres())("a publication that brings another table", () => {
  const scene = walScene();

  async function second(): Promise<PostgresStore> {
    const other = scene.openStore({ schema: "other" });
    await other.migrator.migrate();
    return other;
  }

  /** One message of each installation, in one transaction. */
  async function enqueueInBoth(store: PostgresStore, other: PostgresStore, n: number): Promise<void> {
    const client = new pg.Client({ connectionString: scene.url });
    await client.connect();
    await client.query("begin");
    await createOutbox({ store }).enqueue(client, { stream: "orders", type: "t", key: "k", payload: { key: "k", n } });
    await createOutbox({ store: other }).enqueue(client, {
      stream: "s",
      type: "t",
      key: "f",
      payload: { key: "f", n },
    });
    await client.query("commit");
    await client.end();
  }

  it("as well: its rows are passed over", async () => {
    const store = await scene.open();
    const other = await second();
    await scene.query("alter publication txbox add table other.message");
    const streaming = await scene.start(store);
    await streaming.streams();
    for (let n = 1; n <= 5; n++) await enqueueInBoth(store, other, n);
    await until(() => streaming.publisher.sent.length >= 5, { what: "the own messages" });
    await sleep(1000);
    expect(verdict(streaming.publisher, new Map([["k", 5]]))).toEqual({ lost: 0, doubled: 0, reordered: 0 });
    expect(streaming.publisher.sent.length).toBe(5);
    expect(streaming.lost()).toBeUndefined();
  });

  it("instead, for a moment: what it left out is noticed, and comes by polling", async () => {
    const store = await scene.open();
    const other = await second();
    const streaming = await scene.start(store);
    await streaming.streams();
    await scene.enqueue(store, series("k", 1));
    await until(() => streaming.publisher.sent.length === 1, { what: "the stream" });
    await sleep(1000);
    await scene.query("alter publication txbox set table other.message");
    await enqueueInBoth(store, other, 2);
    await sleep(600);
    await scene.query("alter publication txbox set table txbox.message");
    await scene.enqueue(store, series("j", 1));
    await until(() => streaming.publisher.sent.length >= 3, { what: "all", timeoutMs: 30_000 });
    const committed = new Map([
      ["k", 2],
      ["j", 1],
    ]);
    expect(verdict(streaming.publisher, committed)).toEqual({ lost: 0, doubled: 0, reordered: 0 });
    expect(streaming.lost()).toMatch(/The stream brought 1 of 2 messages/);
  });
});
