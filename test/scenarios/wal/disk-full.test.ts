import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import type { PostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { smallDisk } from "../../support/small-disk.ts";
import { openPool } from "../support/outbox-database.ts";
import { verdict, walScene } from "../support/wal-scene.ts";

const disk = hasPostgres() ? await smallDisk("a full disk under a stream") : undefined;

describe.skipIf(disk === undefined)("a disk that fills up under a stream", () => {
  const scene = walScene({}, (options) => disk!.startPostgres(options));
  afterEach(() => disk!.free());
  afterAll(() => disk!.unmount());

  /** Large messages of one key, one after another, until the server refuses one; the number of the last that it took. */
  async function writeUntilRefused(store: PostgresStore, from: number): Promise<{ last: number; error: Error }> {
    const outbox = createOutbox({ store });
    const pool = openPool(scene.url, 1);
    try {
      for (let n = from; n < from + 2000; n++) {
        const client = await pool.connect();
        try {
          await client.query("begin");
          const payload = { key: "k", n, pad: "x".repeat(300_000) };
          await outbox.enqueue(client, { stream: "orders", type: "changed", key: "k", payload });
          await client.query("commit");
        } catch (error) {
          return { last: n - 1, error: error as Error };
        } finally {
          client.release(true);
        }
      }
    } finally {
      await pool.end();
    }
    throw new Error("the disk did not get full");
  }

  it("holds it up until there is room again; nothing is lost or reordered, and no slot is left when it stops", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store, { leaseMs: 1000 });
    const { publisher } = streaming;
    await streaming.streams();
    await scene.enqueue(store, [{ key: "k", n: 1 }]);
    await until(() => publisher.sent.length === 1, { what: "the stream" });

    disk!.fill();
    const { last, error } = await writeUntilRefused(store, 2);
    expect(error.message).toMatch(/space|terminat|shut|recovery|ECONN|closed|unexpected/i);
    await sleep(2000);

    disk!.free();
    // The server gives up when its own log has no room; an operator would start it again.
    const answers = () =>
      scene.query("select 1").then(
        () => true,
        () => false,
      );
    if (scene.server.pid === undefined || !(await answers())) await scene.server.restart();
    await until(answers, { what: "the database", timeoutMs: 60_000 });
    const [kept] = await scene.query<{ n: number }>("select max((payload ->> 'n')::int) as n from txbox.message");
    // The answer to the last one may have been lost.
    expect(kept!.n - last).toBeOneOf([0, 1]);
    await scene.enqueue(store, [{ key: "k", n: kept!.n + 1 }]);
    await until(() => publisher.sent.at(-1)?.n === kept!.n + 1, { what: "all messages", timeoutMs: 60_000 });
    await streaming.streams();
    expect(verdict(publisher, new Map([["k", kept!.n + 1]]))).toMatchObject({ lost: 0, reordered: 0 });
    await streaming.relay.stop();
    expect(await scene.slots()).toEqual([]);
  }, 180_000);
});
