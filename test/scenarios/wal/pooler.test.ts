import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { requireCommand } from "../../harness/require-command.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startPgBouncer } from "../../harness/start-pgbouncer.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { verdict, walScene } from "../support/wal-scene.ts";

const NONE = { lost: 0, doubled: 0, reordered: 0 };

const slot = await serverOrSkip("PgBouncer", async () => {
  await requireCommand("pgbouncer", { apt: "pgbouncer" });
  return { stop: () => Promise.resolve() };
});

describe.skipIf(!hasPostgres() || slot.skipped)("a pooler between a relay and the server's log", () => {
  const scene = walScene();

  it("is named with what to do, messages come by polling, and by the stream with a direct way", async () => {
    const direct = await scene.open();
    await using pooler = await startPgBouncer({ postgresUrl: scene.url, poolMode: "transaction" });
    const pool = openPool(pooler.url, 5);
    const polling = await scene.start(createPostgresStore({ client: pool }));
    await scene.enqueue(direct, series("k", 20));
    await until(() => polling.publisher.sent.length === 20, { what: "delivery by polling" });
    await until(() => polling.lost() !== undefined, { what: "the reason" });
    expect(polling.lost()).toMatch(/pooler.*replication\.connect/);
    await sleep(2500);
    expect(polling.events.filter(({ type }) => type === "stream_lost")).toHaveLength(1);
    expect(await scene.slots()).toEqual([]);
    expect(verdict(polling.publisher, new Map([["k", 20]]))).toEqual(NONE);
    await polling.relay.stop();

    const connect = () => new pg.Client({ connectionString: scene.url, replication: "database" } as pg.ClientConfig);
    const streaming = await scene.start(createPostgresStore({ client: pool, replication: { connect } }));
    await streaming.streams();
    await scene.enqueue(direct, series("k", 20, 21));
    await until(() => streaming.publisher.sent.length === 20, { what: "the stream" });
    expect(streaming.publisher.sent.map(({ n }) => n)).toEqual(series("k", 20, 21).map(({ n }) => n));
    await streaming.relay.stop();
    expect(await scene.slots()).toEqual([]);
    await pool.end();
  }, 60_000);
});
