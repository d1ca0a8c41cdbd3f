import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { verdict, walScene } from "../support/wal-scene.ts";

const AWAY_MS = 3000;

describe.skipIf(!hasPostgres())(
  "a settle whose answer is lost, with the database away for longer than the lease",
  () => {
    const scene = walScene();

    it.each(["stream", "polling"] as const)(
      "doubles nothing: %s",
      async (source) => {
        await scene.open();
        const pool = openPool(scene.url);
        const reset = () => Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
        const textOf = (config: string | object) =>
          typeof config === "string" ? config : (config as { text: string }).text;
        let [armed, away, failed] = [false, false, false];
        const client = {
          async query(config: string | object) {
            if (away) throw reset();
            const isSettle = armed && /commit_mode from c/.test(textOf(config));
            const result: unknown = await pool.query(config as pg.QueryConfig);
            if (!isSettle) return result;
            [armed, away] = [false, true];
            setTimeout(() => (away = false), AWAY_MS);
            throw reset();
          },
          async connect() {
            if (away) throw reset();
            return pool.connect();
          },
          get totalCount() {
            return pool.totalCount;
          },
        } as unknown as pg.Pool;
        const connect = () =>
          new pg.Client({ connectionString: scene.url, replication: "database" } as pg.ClientConfig);
        const store = createPostgresStore({ client, replication: { connect } });
        const streaming = await scene.start(store, { source, leaseMs: 2000, backoff: { baseMs: 20, maxMs: 50 } });
        const { publisher } = streaming;
        if (source === "stream") await streaming.streams();
        await scene.enqueue(store, series("w", 1));
        await until(() => publisher.sent.length === 1, { what: "the first message" });
        await sleep(1000);
        publisher.rule = ({ key }) => {
          if (key !== "b" || failed) return undefined;
          failed = true;
          return { status: "failed", error: new Error("once") };
        };
        armed = true;
        await scene.enqueue(store, [...series("a", 20), ...series("b", 1)]);
        const committed = new Map([
          ["w", 1],
          ["a", 20],
          ["b", 1],
        ]);
        await until(() => verdict(publisher, committed).lost === 0, { what: "the rest", timeoutMs: 20_000 });
        await sleep(2500);
        expect(armed).toBe(false);
        expect(verdict(publisher, committed)).toEqual({ lost: 0, doubled: 0, reordered: 0 });
        await streaming.relay.stop();
        await pool.end();
      },
      60_000,
    );
  },
);
