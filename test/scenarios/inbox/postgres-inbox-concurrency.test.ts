import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { AnyEvents } from "../../../src/core/message.ts";
import { uuidv7, uuidv7At } from "../../../src/core/uuid.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import type { PostgresTx } from "../../../src/stores/postgres/postgres-client.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { incoming, run } from "../../support/inbox-delivery.ts";
import {
  openDriver,
  storeParts,
  type Driver,
  type DriverName,
  type StoreParts,
} from "../../support/postgres-drivers.ts";
import { createSubscription } from "../../support/subscription.ts";

const DAY_MS = 86_400_000;

describe.skipIf(!hasPostgres()).each<DriverName>(["node-postgres", "postgres.js"])(
  "concurrent deliveries on %s",
  (name) => {
    let base: TestDatabase;
    let driver: Driver;
    let store: StoreParts;

    beforeAll(async () => {
      base = await testDatabase();
      driver = openDriver(name, base.url, 20);
      store = storeParts(driver);
      await store.migrator.migrate();
      await store.database.exec("create table effect (what text)");
    });
    afterAll(async () => {
      await driver.close();
      await base.drop();
    });
    const count = (what: string) => store.database.query(`select count(*) from effect where what = '${what}'`);

    it("lets one of two run while the other waits and sees it done", async () => {
      for (const end of ["commits", "fails"] as const) {
        const message = incoming();
        const entered = Promise.withResolvers<void>();
        const release = Promise.withResolvers<void>();
        const inbox = createInbox<AnyEvents, PostgresTx>({ store, consumer: "c" });
        const first = inbox
          .handle(message, async (tx) => {
            await run(tx, `insert into effect values ('${message.id}')`);
            entered.resolve();
            await release.promise;
            if (end === "fails") throw new Error("fails");
          })
          .catch(() => "failed");
        await entered.promise;
        let done = false;
        const second = inbox
          .handle(message, (tx) => run(tx, `insert into effect values ('${message.id}')`))
          .finally(() => (done = true));
        await sleep(100);
        expect(done).toBe(false);
        release.resolve();
        // The delivery that failed may learn that the other has done it meanwhile.
        expect(end === "commits" ? ["processed"] : ["failed", "duplicate"]).toContain(await first);
        expect(await second).toBe(end === "commits" ? "duplicate" : "processed");
        expect(await count(message.id)).toEqual([["1"]]);
      }
    });

    it("runs once under a crowd that finds a failed receipt", async () => {
      const inbox = createInbox<AnyEvents, PostgresTx>({ store, consumer: "again" });
      const message = incoming();
      await expect(inbox.handle(message, async () => Promise.reject(new Error("no")))).rejects.toThrow("no");
      const effect = (tx: PostgresTx) => run(tx, `insert into effect values ('again-${message.id}')`);
      const outcomes = await Promise.all(Array.from({ length: 15 }, () => inbox.handle(message, effect)));
      expect(outcomes.filter((outcome) => outcome === "processed")).toHaveLength(1);
      expect(outcomes.filter((outcome) => outcome === "duplicate")).toHaveLength(14);
      expect(await count(`again-${message.id}`)).toEqual([["1"]]);
    });

    it("runs once under a crowd, also when the days are missing", async () => {
      const ids = [uuidv7(), uuidv7At(Date.now() - 3 * DAY_MS), "foreign"];
      const inbox = createInbox<AnyEvents, PostgresTx>({ store, consumer: "crowd" }).on("t", (tx, { id }) =>
        run(tx, `insert into effect values ('crowd-${id}')`),
      );
      for (const id of ids) {
        const outcomes = await Promise.all(Array.from({ length: 15 }, () => inbox.handle(incoming({ id }))));
        expect(outcomes.filter((outcome) => outcome === "processed")).toHaveLength(1);
        expect(outcomes.filter((outcome) => outcome === "duplicate")).toHaveLength(14);
        expect(await count(`crowd-${id}`)).toEqual([["1"]]);
      }
    });

    it.each(["repeatable read", "serializable"])("retries what %s gives up", async (level) => {
      const url = new URL(base.url);
      url.searchParams.set("options", `-c default_transaction_isolation=${level.replace(" ", "\\ ")}`);
      const strict = name === "node-postgres" ? openDriver(name, url.href, 10) : undefined;
      const parts = strict === undefined ? store : storeParts(strict);
      const inbox = createInbox<AnyEvents, PostgresTx>({ store: parts, consumer: level.replace(" ", "-") }).on(
        "t",
        async (tx, { id }) => {
          if (strict === undefined) return;
          expect(await run(tx, "show transaction_isolation")).toEqual([[level]]);
          await run(tx, `insert into effect values ('${level}-${id}')`);
          await sleep(5);
        },
      );
      const id = uuidv7();
      const outcomes = await Promise.all(Array.from({ length: 4 }, () => inbox.handle(incoming({ id }))));
      expect(outcomes.toSorted()).toEqual(["duplicate", "duplicate", "duplicate", "processed"]);
      await strict?.close();
    });

    it("gives up waiting for a handler that hangs in a query", async () => {
      const message = incoming();
      const inbox = createInbox<AnyEvents, PostgresTx>({ store, consumer: "hangs", handlerTimeoutMs: 100 }).on(
        "t",
        (tx) => run(tx, "select pg_sleep(20)"),
      );
      const started = performance.now();
      await expect(inbox.handle(message)).rejects.toMatchObject({ code: "handler_timeout" });
      expect(performance.now() - started).toBeLessThan(15_000);
    });

    it("does not let the query of a handler that was given up live on", async () => {
      const message = incoming();
      const inbox = createInbox<AnyEvents, PostgresTx>({ store, consumer: "zombie", handlerTimeoutMs: 200 });
      const hanging = inbox.handle(message, (tx) => run(tx, "select pg_sleep(20), 'zombie'"));
      await expect(hanging).rejects.toMatchObject({ code: "handler_timeout" });
      const [row] = await store.database.query(
        `select status, attempts from ${store.names.receipt} where message_id = '${message.id}'`,
      );
      expect(row).toEqual(["failed", "1"]);
      expect(await inbox.handle(message, async () => undefined)).toBe("processed");
    });

    it("waits for a receipt no longer than for a handler, then works on", async () => {
      const message = incoming();
      const slow = createInbox<AnyEvents, PostgresTx>({ store, consumer: "held" });
      const entered = Promise.withResolvers<void>();
      const release = Promise.withResolvers<void>();
      const first = slow.handle(message, async () => {
        entered.resolve();
        await release.promise;
      });
      await entered.promise;
      const bus = createSubscription();
      await createInbox<AnyEvents, PostgresTx>({ store, consumer: "held", handlerTimeoutMs: 100 })
        .on("t", async () => undefined)
        .start(bus);
      expect(await bus.deliver(message)).toMatchObject({ status: "failed", error: { code: "handler_timeout" } });
      const waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
      expect(await store.database.query(waiting)).toEqual([["0"]]);
      release.resolve();
      expect(await first).toBe("processed");
      expect(await bus.deliver(message)).toMatchObject({ handled: "duplicate" });
    });

    it("calls it unavailable when an operator ends the connection or the database is away", async () => {
      const bus = createSubscription();
      const inbox = createInbox<AnyEvents, PostgresTx>({ store, consumer: "cut" }).on("t", (tx) =>
        run(tx, "select pg_terminate_backend(pg_backend_pid())"),
      );
      await inbox.start(bus);
      // postgres.js keeps to itself why the server closed the connection; as the database is there, the message counts.
      const status = name === "postgres.js" ? "failed" : "unavailable";
      expect(await bus.deliver(incoming())).toMatchObject({ status });
      const away = openDriver(name, base.url.replace(/:\d+\//, ":1/"), 1);
      const nowhere = createInbox<AnyEvents, PostgresTx>({ store: storeParts(away), consumer: "away" }).on(
        "t",
        async () => undefined,
      );
      await nowhere.start(bus);
      expect(await bus.deliver(incoming())).toMatchObject({ status: "unavailable" });
      await away.close();
    });

    it("blames the message when the server ended its session for being idle, or for going over a limit", async () => {
      const bus = createSubscription();
      await createInbox<AnyEvents, PostgresTx>({ store, consumer: "idle", maxAttempts: 2 })
        .on("idle", async (tx) => {
          await run(tx, "set local idle_in_transaction_session_timeout = 50");
          await sleep(300);
        })
        .on("limit", (tx) => run(tx, "do $$ begin raise exception 'too much' using errcode = '53400'; end $$"))
        .on("readonly", async (tx) => {
          await run(tx, "set transaction read only");
          await run(tx, "insert into effect values ('readonly')");
        })
        .start(bus);
      for (const type of ["idle", "limit", "readonly"]) {
        const message = incoming({ type });
        const outcomes = [(await bus.deliver(message)).status, (await bus.deliver(message)).status];
        expect(outcomes, type).toEqual(["failed", "rejected"]);
      }
      expect(await store.database.query("select 1")).toEqual([["1"]]);
    });

    it("lands nothing of a handler whose connection died under it", async () => {
      const bus = createSubscription();
      const late = Promise.withResolvers<unknown>();
      await createInbox<AnyEvents, PostgresTx>({ store, consumer: "orphan" })
        .on("t", async (tx) => {
          const [row] = await run(tx, "select pg_backend_pid()");
          await store.database.query("select pg_terminate_backend($1::text::int)", [String(row?.[0])]);
          await sleep(100);
          // By now the driver may have given the connection a successor.
          await Promise.allSettled(Array.from({ length: 20 }, () => store.database.query("select 1")));
          await run(tx, "insert into effect values ('orphan')").then(late.reject, late.resolve);
        })
        .start(bus);
      expect((await bus.deliver(incoming())).status).toMatch(/unavailable|failed/);
      expect(await late.promise).toBeInstanceOf(Error);
      await sleep(50);
      expect(await count("orphan")).toEqual([["0"]]);
    });

    it("does not blame the database for what a handler could not reach", async () => {
      const bus = createSubscription();
      await createInbox<AnyEvents, PostgresTx>({ store, consumer: "http" })
        .on("t", async () => Promise.reject(Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" })))
        .start(bus);
      expect(await bus.deliver(incoming())).toMatchObject({ status: "failed" });
    });
  },
);
