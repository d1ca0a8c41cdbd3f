import pg from "pg";
import { startPostgres } from "./harness/start-postgres.ts";
import { createPostgresStore } from "../src/stores/postgres/index.ts";
import { createOutbox, createRelay } from "../src/index.ts";

const server = await startPostgres({ owned: true, fsync: true });
const pool = new pg.Pool({ connectionString: server.url, max: 10 });
const store = createPostgresStore({ client: pool });
await store.migrator.migrate();
console.log(await store.wal.enable());
const outbox = createOutbox({ store });
const lat: number[] = [];
const seen = new Map<number, number>();
const publisher = {
  keepsKeyOrder: true,
  async publish(ms: any[]) {
    for (const m of ms) {
      const p = JSON.parse(String(m.body));
      lat.push(performance.now() - p.at);
      seen.set(p.n, (seen.get(p.n) ?? 0) + 1);
    }
    return ms.map(() => ({ status: "published" as const }));
  },
};
const relay = createRelay({
  store,
  name: "r",
  publisher,
  source: (process.argv[2] ?? "stream") as any,
  onEvent: (e: any) => {
    if (e.type !== "batch") console.log(e);
  },
});
await relay.start();
let n = 0;
const writer = new pg.Client({ connectionString: server.url });
await writer.connect();
const until = performance.now() + 4000;
while (performance.now() < until) {
  await writer.query("begin");
  await outbox.enqueue(writer, {
    stream: "s",
    type: "t",
    key: "k" + (n % 10),
    payload: { n: ++n, at: performance.now() },
  });
  await writer.query("commit");
  await new Promise((r) => setTimeout(r, 2));
}
await new Promise((r) => setTimeout(r, 600));
const tail = lat.slice(Math.floor(lat.length / 2)).sort((a, b) => a - b);
console.log(
  "sent",
  n,
  "seen",
  seen.size,
  "doubles",
  [...seen.values()].filter((c) => c > 1).length,
  "p50",
  tail[tail.length >> 1],
  "p99",
  tail[Math.floor(tail.length * 0.99)],
);
console.log(
  await pool.query("select id, seq, prev, next, cur, wal_lsn, settled from txbox.cursor").then((r) => r.rows),
);
console.log(JSON.stringify(await store.wal.status(), (_, v) => (typeof v === "bigint" ? String(v) : v)));
console.log((await pool.query("select status, count(*) from txbox.message_status group by 1")).rows);
await relay.stop();
console.log(await pool.query("select * from pg_replication_slots").then((r) => r.rows.length), "slots");
await writer.end();
await pool.end();
await server.stop();
