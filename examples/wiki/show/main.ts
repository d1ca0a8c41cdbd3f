import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { type MongodbServer, ServerUnavailableError, startMongodb, until } from "../../../test/harness/index.ts";
import { openWiki, type Wiki } from "../wiki.ts";
import { Worker } from "./worker-process.ts";

const HELP = `npm run example:wiki -- [options]

Authors save pages; workers render, index and count them, without a broker. Workers and the database are killed at random,
messages come twice, and some revisions never get into the outbox. At the end everything is as if nothing had happened.

  --seconds N   how long the authors write (default 8)
  --calm        kill nothing
  --json FILE   write the result to a file
  --help        this text
`;

interface Result {
  passed: boolean;
  revisions: number;
  /** Revisions whose message the reconciler enqueued. */
  reconciled: number;
  snapshots: number;
  missingSnapshots: string[];
  searchDocuments: number;
  staleSearchDocuments: string[];
  miscounted: string[];
  dead: number;
  kills: number;
  pauses: number;
  serverKills: number;
  repeats: number;
  crashes: string[];
}

/** What should follow from the revisions, against what is there. */
async function compare(
  wiki: Wiki,
): Promise<Omit<Result, "passed" | "kills" | "pauses" | "serverKills" | "crashes" | "repeats" | "reconciled">> {
  const revisions = await wiki.revisions.find().toArray();
  const snapshots = new Map((await wiki.snapshots.find().toArray()).map((one) => [one._id, one.html]));
  const search = await wiki.search.find().toArray();
  const counters = new Map((await wiki.counters.find().toArray()).map((one) => [one._id, one.revisions]));
  const byPage = Map.groupBy(revisions, ({ pageId }) => pageId);
  const heads = [...byPage].map(([pageId, those]) => ({
    pageId,
    head: Math.max(...those.map(({ revision }) => revision)),
  }));
  return {
    revisions: revisions.length,
    snapshots: snapshots.size,
    missingSnapshots: revisions.flatMap(({ _id, text }) => (snapshots.get(_id) === `<p>${text}</p>` ? [] : [_id])),
    searchDocuments: search.length,
    staleSearchDocuments: heads.flatMap(({ pageId, head }) => {
      const mine = search.filter(({ _id }) => _id === pageId);
      return mine.length === 1 && mine[0]?.revision === head ? [] : [pageId];
    }),
    miscounted: [...byPage].flatMap(([pageId, those]) =>
      counters.get(pageId) === those.length ? [] : [`${pageId}: ${counters.get(pageId)} of ${those.length}`],
    ),
    dead: (await wiki.store.admin.dead({})).length,
  };
}

const isRight = (found: Awaited<ReturnType<typeof compare>>): boolean =>
  found.revisions > 0 &&
  found.missingSnapshots.length + found.staleSearchDocuments.length + found.miscounted.length + found.dead === 0;

/** Old messages come again, as after a restored backup: everything must have seen them. */
async function repeat(wiki: Wiki): Promise<number> {
  const some = await wiki.revisions.aggregate<{ _id: string }>([{ $sample: { size: 5 } }]).toArray();
  const again = { status: "new", waits: "ready", attempts: 0, lease_owner: null, lease_until: null };
  const { modifiedCount } = await wiki.client
    .db()
    .collection<{ _id: string }>("outbox")
    .updateMany(
      { _id: { $in: some.map(({ _id }) => _id) }, status: "done" },
      {
        $set: again,
        $unset: { published_at: 1, lease_token: 1 },
      },
    );
  return modifiedCount;
}

async function show(server: MongodbServer, seconds: number, calm: boolean): Promise<Result> {
  const url = server.url.replace("/?", "/wiki?");
  const wiki = openWiki(url);
  await wiki.store.migrator.migrate();
  for (const name of ["pages", "revisions", "page_snapshots", "search_documents", "counters"])
    await wiki.client.db().createCollection(name);
  const workers = [1, 2, 3].map(() => new Worker("worker.ts", url));
  const writer = new Worker("writer.ts", url);
  await Promise.all([...workers, writer].map((worker) => worker.ready()));
  let [kills, pauses, serverKills, repeats] = [0, 0, 0, 0];
  const endsAt = performance.now() + seconds * 1000;
  for (let n = 0; performance.now() < endsAt; n++) {
    await sleep(700);
    repeats += await repeat(wiki).catch(() => 0);
    if (calm) continue;
    const worker = workers[n % workers.length];
    if (n % 4 === 3) {
      serverKills++;
      await server.kill();
      await server.restart();
    } else if (n % 2 === 0) {
      kills++;
      await worker?.kill();
    } else {
      pauses++;
      worker?.pause(3000);
    }
  }
  await writer.stop();
  const found = await until(async () => ((found) => isRight(found) && found)(await compare(wiki)), {
    what: "the end of background work",
    timeoutMs: 60_000,
    intervalMs: 500,
  }).catch(() => compare(wiki));
  await Promise.all(workers.map((worker) => worker.stop()));
  const reconciled = await wiki.client.db().collection("outbox").countDocuments({ "headers.by": "reconciler" });
  await wiki.client.close();
  const crashes = [...workers, writer].flatMap((worker) => worker.crashes);
  const passed = isRight(found) && crashes.length === 0;
  return { passed, ...found, reconciled, kills, pauses, serverKills, repeats, crashes };
}

function options(): { seconds: number; calm: boolean; json: string | undefined } {
  try {
    const { values } = parseArgs({
      options: {
        seconds: { type: "string", default: "8" },
        calm: { type: "boolean", default: false },
        json: { type: "string" },
        help: { type: "boolean", default: false },
      },
    });
    if (values.help) {
      process.stdout.write(HELP);
      process.exit(0);
    }
    const seconds = Number(values.seconds);
    if (!(seconds > 0)) throw new Error(`--seconds must be a number above 0, got ${values.seconds}`);
    return { seconds, calm: values.calm, json: values.json };
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\nSee npm run example:wiki -- --help\n`);
    return process.exit(2);
  }
}

const { seconds, calm, json } = options();
try {
  await using server = await startMongodb({
    owned: true,
    // A killed worker's transaction is given up after three seconds.
    args: ["--setParameter", "transactionLifetimeLimitSeconds=3"],
  });
  const result = await show(server, seconds, calm);
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(result, undefined, 2)}\n`);
  process.stdout.write(`${JSON.stringify(result, undefined, 2)}\n`);
  process.stdout.write(result.passed ? "All is as it should be.\n" : "Something is wrong.\n");
  process.exitCode = result.passed ? 0 : 1;
} catch (error) {
  if (!(error instanceof ServerUnavailableError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 3;
}
process.exit();
