import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { createRelay, publishEach } from "../../src/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";

/** What the process that relays tells the benchmark. */
export type FailingReport =
  /** Different failing keys that were tried at least once. */
  | { readonly tried: number }
  /** Number and arrival (ns) of each healthy message. */
  | { readonly arrivals: [n: number, time: string][] };

const [url, failAfterMs] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: url });
pool.on("error", () => undefined);
const arrivals: [number, string][] = [];
const tried = new Set<string>();

const relay = createRelay({
  store: createPostgresStore({ client: pool }),
  name: "bench",
  publisher: publishEach(async ({ key, body }) => {
    if (!String(key).startsWith("failing")) {
      arrivals.push([(JSON.parse(String(body)) as { n: number }).n, String(process.hrtime.bigint())]);
      return;
    }
    tried.add(String(key));
    if (Number(failAfterMs) > 0) await sleep(Number(failAfterMs));
    throw new Error("this key fails");
  }),
});

process.on("message", async (question) => {
  if (question === "tried") process.send?.({ tried: tried.size } satisfies FailingReport);
  if (question === "arrivals") process.send?.({ arrivals } satisfies FailingReport);
  if (question !== "stop") return;
  await relay.stop({ deadlineMs: 500 });
  process.exit(0);
});
await relay.start();
process.send?.({ tried: 0 } satisfies FailingReport);
