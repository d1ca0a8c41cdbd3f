import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { flakyPool } from "../support/flaky-pool.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

describe.skipIf(!hasPostgres())("an inbox that gets no answer to its commit", () => {
  let database: OutboxDatabase;

  beforeEach(async () => {
    database = await outboxDatabase();
    await database.query("create table effect (id text)");
  });
  afterEach(() => database[Symbol.asyncDispose]());

  it("finds that the message is processed, though it has no attempt left", async () => {
    const flaky = flakyPool(database.pool);
    const inbox = createInbox({
      store: createPostgresStore({ client: flaky.client }),
      consumer: "payments",
      maxAttempts: 1,
    });
    const handle = (id: string) =>
      inbox.handle({ id, type: "paid", body: "{}", headers: {} }, async (tx) => {
        const text = "insert into effect values ($1)";
        await (tx as { query(config: object): Promise<unknown> }).query({ text, values: [id] });
      });
    // With the first receipt of a day its place is made.
    const [first, second] = [uuidv7(), uuidv7()];
    expect(await handle(first)).toBe("processed");
    flaky.loseAnswer(/^commit$/);
    expect(await handle(second)).toBe("duplicate");
    expect(flaky.lost).toBe(1);
    expect(await handle(second)).toBe("duplicate");
    expect(await database.query("select id from effect")).toEqual([{ id: first }, { id: second }]);
    expect(await database.value("select count(*) from txbox.receipt where status = 'processed'")).toBe("2");
  });
});
