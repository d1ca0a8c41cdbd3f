import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type Numbered, outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { firstsOf, upTo } from "../support/recording-publisher.ts";
import { type ChildSent, relayProcess, type RelayProcess } from "../support/relay-process.ts";

describe.skipIf(!hasPostgres())("kill -9 between publish and settle", () => {
  let database: OutboxDatabase;
  const children: RelayProcess[] = [];

  beforeEach(async () => {
    database = await outboxDatabase();
    await database.query("create table effect (seq serial, key text, n int)");
  });
  afterEach(async () => {
    await Promise.all(children.splice(0).map((child) => child.kill()));
    await database[Symbol.asyncDispose]();
  });

  /** The receiving end: what a broker would bring, in the order it was sent. */
  async function receive(sent: readonly ChildSent[]): Promise<string[]> {
    const inbox = createInbox({ store: database.store, consumer: "payments" });
    const handled: string[] = [];
    for (const { id, position, key, n } of sent) {
      const message = {
        id,
        position: BigInt(position),
        key,
        type: "changed",
        body: JSON.stringify({ key, n }),
        headers: {},
      };
      handled.push(
        await inbox.handle(message, async (tx, { payload }) => {
          const numbered = payload as Numbered;
          await tx.query("insert into effect (key, n) values ($1, $2)", [numbered.key, numbered.n]);
        }),
      );
    }
    return handled;
  }

  const effects = async (): Promise<number[]> =>
    (await database.query<{ n: number }>("select n from effect order by seq")).map(({ n }) => n);

  function start(config: Partial<Parameters<typeof relayProcess>[0]> = {}): RelayProcess {
    const child = relayProcess({ url: database.url, leaseMs: 1000, batchSize: 5, ...config });
    children.push(child);
    return child;
  }

  it("the messages go out again, and the inbox drops the repeats", async () => {
    await database.enqueue(series("a", 10));
    const first = start({ mode: "ask" });
    await first.waitForLine("asked");
    // Out, but neither confirmed to the relay nor settled.
    await until(() => first.sent("asked").length === 5, { what: "the first batch" });
    await first.kill();
    const published = first.sent("asked");
    expect(published.map(({ n }) => n)).toEqual(upTo(5));
    expect(await receive(published)).toEqual(upTo(5).map(() => "processed"));

    const second = start();
    await until(() => second.sent().length >= 10, { what: "all messages, from the beginning" });
    expect(second.sent().map(({ n }) => n)).toEqual(upTo(10));
    expect(
      second
        .sent()
        .map(({ id }) => id)
        .slice(0, 5),
    ).toEqual(published.map(({ id }) => id));
    expect(
      second
        .sent()
        .map(({ position }) => position)
        .slice(0, 5),
    ).toEqual(published.map(({ position }) => position));
    const handled = await receive(second.sent());
    expect(handled).toEqual([...upTo(5).map(() => "duplicate"), ...upTo(5).map(() => "processed")]);
    expect(await effects()).toEqual(upTo(10));
  });

  it("again and again: every effect once and in order", async () => {
    await database.enqueue([...series("a", 20), ...series("b", 20)]);
    const all: ChildSent[] = [];
    for (let round = 0; round < 3; round++) {
      const child = start({ mode: "ask", batchSize: 7 });
      await child.waitForLine("asked");
      // After two deaths messages are tried one by one.
      const batch = round < 2 ? 7 : 1;
      await until(() => child.sent("asked").length >= batch, { what: "a batch" });
      // One batch gets through and is settled, the next is sent and the process killed.
      child.send("go");
      await until(() => child.sent("asked").length >= 2 * batch, { what: "the next batch" });
      await child.kill();
      all.push(...child.sent("asked"));
    }
    const last = start();
    await until(() => new Set([...all, ...last.sent()].map(({ id }) => id)).size === 40, { what: "all messages" });
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
    all.push(...last.sent());
    for (const key of ["a", "b"]) expect(firstsOf(all, key)).toEqual(upTo(20));
    await receive(all);
    expect(await database.value("select count(*)::int from effect")).toBe(40);
    for (const key of ["a", "b"]) {
      const rows = await database.query<{ n: number }>("select n from effect where key = $1 order by seq", [key]);
      expect(rows.map(({ n }) => n)).toEqual(upTo(20));
    }
  });
});
