import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { audit, createInbox, createOutbox, createRelay, type Message, type Store } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { inTransaction } from "../../support/in-transaction.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";
import { projectFolder, runCli } from "../../support/run-cli.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb());
}, 240_000);
afterAll(() => slot.stop());

interface Side extends AsyncDisposable {
  readonly url: string;
  readonly store: Store;
  transaction(run: (tx: never) => Promise<unknown>): Promise<unknown>;
}

async function sideOf(kind: "postgres" | "mongodb"): Promise<Side> {
  if (kind === "postgres") {
    const database = await outboxDatabase();
    return {
      url: database.url,
      store: database.store,
      transaction: (run) => inTransaction(database.pool, (tx) => run(tx as never)),
      [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
    };
  }
  const database = await mongoDatabase(slot.server.url);
  const { client } = database;
  const store = createMongoStore({ client });
  await store.migrator.migrate();
  return {
    url: database.url,
    store,
    transaction: (run) => client.withSession((session) => session.withTransaction(() => run(session as never))),
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

const KINDS = ["postgres", "mongodb"] as const;
const PAIRS = KINDS.flatMap((from) => KINDS.map((to) => [from, to] as const));

describe.skipIf(!hasPostgres())("an audit between stores", () => {
  it.for(PAIRS)("finds and sends again what is missing from %s to %s", async ([fromKind, toKind], { skip }) => {
    skip(slot.skipped, slot.reason);
    await using from = await sideOf(fromKind);
    await using to = await sideOf(toKind);
    const outbox = createOutbox({ store: from.store });
    const ids = Array.from({ length: 2500 }, (_, n) => (n % 3 === 0 ? [`chosen-${n}`] : []));
    for (let at = 0; at < ids.length; at += 500) {
      await from.transaction((tx) =>
        outbox.enqueue(
          tx,
          ids.slice(at, at + 500).map(([id], i) => ({
            ...(id === undefined ? {} : { id }),
            stream: "orders",
            type: "order_placed",
            key: `k${(at + i) % 20}`,
            payload: { n: at + i },
          })),
        ),
      );
    }
    const publisher = createMemoryPublisher();
    const relay = createRelay({ store: from.store, name: "r", publisher, start: "earliest" });
    await relay.drainOnce({ deadlineMs: 60_000 });
    expect(publisher.published).toHaveLength(2500);

    const inbox = createInbox({ store: to.store, consumer: "payments" });
    const effects: string[] = [];
    inbox.on("order_placed", async (_, { id }) => void effects.push(id));
    const isLost = ({ body }: Message): boolean => (JSON.parse(String(body)) as { n: number }).n % 250 === 7;
    const lost = publisher.published.filter(isLost).map(({ id }) => id);
    const arriving = publisher.published.filter((message) => !isLost(message));
    for (let at = 0; at < arriving.length; at += 20)
      await Promise.all(arriving.slice(at, at + 20).map((message) => inbox.handle(message)));

    const range = { from: from.store, to: to.store, consumer: "payments", since: new Date(Date.now() - 3_600_000) };
    const report = await audit({ ...range, graceMs: 0 });
    expect(report).toMatchObject({ checked: 2500, arrived: 2490, missing: 10, clean: false, relay: "r" });
    expect(report.findings.map(({ id }) => id).sort()).toEqual(lost.toSorted());
    const again = createMemoryPublisher();
    await audit({ ...range, graceMs: 0, requeue: again });
    await audit({ ...range, graceMs: 0, requeue: again });
    for (const message of again.published) await inbox.handle(message);
    expect(again.published).toHaveLength(20);
    expect(effects).toHaveLength(2500);
    expect(new Set(effects).size).toBe(2500);
    using project = projectFolder();
    const args = [
      "audit",
      "--from",
      from.url,
      "--to",
      to.url,
      "--consumer",
      "payments",
      "--grace",
      "0s",
      "--since",
      "1h",
    ];
    const { code, stdout, stderr } = await runCli(args, { cwd: project.path });
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/2,500 messages: 2500 arrived, 0 on their way, 0 missing/);
  });

  it("says which relay has to be named, and which option is wrong", async () => {
    await using side = await sideOf("postgres");
    const { store } = side;
    const since = new Date(Date.now() - 1000);
    const range = { from: store, to: store, consumer: "c", since };
    await expect(audit(range)).rejects.toThrow(/0 relays deliver these streams/);
    for (const name of ["one", "two"])
      await createRelay({ store, name, publisher: createMemoryPublisher() }).drainOnce({ deadlineMs: 5000 });
    await expect(audit(range)).rejects.toThrow(/2 relays deliver these streams. Name one of one, two/);
    await expect(audit({ ...range, relay: "three" })).rejects.toThrow(
      /There is no relay "three". Name one of one, two/,
    );
    expect(await audit({ ...range, relay: "two" })).toMatchObject({ checked: 0, clean: true });
    await expect(audit({ ...range, until: since })).rejects.toThrow(/until is not after since/);
    await expect(audit({ ...range, consumer: "not a name" })).rejects.toThrow(/consumer/);
    await expect(audit({ ...range, late: 5 } as never)).rejects.toThrow(/Did you mean "lateMs"/);
    const stop = AbortSignal.abort(new Error("enough"));
    await expect(audit({ ...range, relay: "two", signal: stop })).rejects.toThrow("enough");
  });
});
