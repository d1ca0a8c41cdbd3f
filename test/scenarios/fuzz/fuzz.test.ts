import { describe, expect, it } from "vitest";
import { BROKERS } from "../../fuzz/broker-target.ts";
import { fuzzBroker } from "../../fuzz/fuzz-broker.ts";
import { fuzzStore } from "../../fuzz/fuzz-store.ts";
import { STORES } from "../../fuzz/store-target.ts";
import { inCi, ServerUnavailableError } from "../../harness/index.ts";
import { isLong } from "../../support/is-long.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";

const COUNT = isLong ? 1000 : 150;
/** Another one each day; `npm run fuzz -- --seed` repeats it. */
const SEED = Math.floor(Date.now() / 86_400_000);

/** The figures; undefined, said loudly, where this machine lacks the server. */
async function orSkip<T>(name: string, run: Promise<T>): Promise<T | undefined> {
  try {
    return await run;
  } catch (error) {
    if (!(error instanceof ServerUnavailableError) || inCi()) throw error;
    process.stderr.write(`\n*** SKIPPED: no ${name}. ${error.reason}\n\n`);
    return undefined;
  }
}

describe.skipIf(!hasPostgres())(`hostile messages, seed ${SEED}`, () => {
  it.each(BROKERS)("through %s are delivered as they were sent, or dead with their bytes", async (broker) => {
    await using database = await testDatabase();
    const figures = await orSkip(broker, fuzzBroker({ broker, databaseUrl: database.url, count: COUNT, seed: SEED }));
    if (figures === undefined) return;
    expect(figures.sent + figures.refused).toBe(COUNT);
    expect(figures.delivered + figures.dead).toBe(figures.sent);
    expect(figures.delivered).toBeGreaterThan(0);
  });

  it.each(STORES)("into %s are delivered equal, or refused before anything is written", async (store) => {
    await using database = await testDatabase();
    const figures = await orSkip(store, fuzzStore({ store, databaseUrl: database.url, count: COUNT, seed: SEED }));
    if (figures === undefined) return;
    const { refused, delivered, scheduled, duplicates } = figures;
    expect(refused + delivered + scheduled + duplicates).toBe(COUNT);
    expect(delivered).toBeGreaterThan(0);
  });
});
