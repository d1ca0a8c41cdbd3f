import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { checkOut } from "../../src/stores/postgres/drivers/check-out.ts";
import { createRandom } from "./random.ts";
import { chooseTransaction, type Writing } from "./writer-transactions.ts";
import { openPool, soakStore } from "./world.ts";

const [url = "", seed = "", count = ""] = process.argv.slice(2);
const pool = openPool(url, Number(count) + 1, "-c lock_timeout=1500");
const outbox = createOutbox({ store: soakStore(pool) });
const rolledBack = new Map<string, number>();
const stopping = new AbortController();

async function write(number: number): Promise<void> {
  const random = createRandom(Number(seed) * 100 + number);
  while (!stopping.signal.aborted) {
    const { kind, run } = chooseTransaction(random, number % 8 < 3);
    try {
      const onError = (): void => undefined;
      const client = (await checkOut(pool, onError)) as pg.PoolClient;
      const writing: Writing = { client, outbox, random, kind };
      let failed = false;
      try {
        await run(writing);
      } catch (error) {
        failed = true;
        await client.query("rollback").catch(() => undefined);
        throw error;
      } finally {
        client.release(failed);
        // What was given up may still hear that the server is gone.
        if (!failed) client.off("error", onError);
      }
    } catch (error) {
      const name = (error as { code?: string }).code ?? String(error);
      rolledBack.set(name, (rolledBack.get(name) ?? 0) + 1);
      await sleep(50);
    }
    await sleep(random.int(0, 50));
  }
}

process.on("SIGTERM", () => stopping.abort());
process.stdout.write("started\n");
const report = setInterval(
  () => process.stdout.write(`rolled_back ${JSON.stringify(Object.fromEntries(rolledBack))}\n`),
  1000,
);
await Promise.all(Array.from({ length: Number(count) }, (_, i) => write(i)));
clearInterval(report);
await pool.end();
