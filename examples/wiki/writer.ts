import { setTimeout as sleep } from "node:timers/promises";
import { saveRevision, saveRevisionAndCrash } from "./save-revision.ts";
import { openWiki } from "./wiki.ts";

// Authors at work. A part of what they save is left out of the outbox, as by a crash between two writes.
const wiki = openWiki(process.env["MONGODB_URL"] ?? "mongodb://127.0.0.1:27017/wiki?replicaSet=rs0");
const PAGES = 20;
const LEFT_OUT = 0.1;
const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());

async function author(name: number): Promise<void> {
  for (let n = 0; !stopping.signal.aborted; n++) {
    const page = `page-${Math.floor(Math.random() * PAGES)}`;
    const text = `Author ${name} writes version ${n} of ${page}`;
    const save = Math.random() < LEFT_OUT ? saveRevisionAndCrash : saveRevision;
    await save(wiki, page, text).catch(() => sleep(100));
    await sleep(Math.random() * 60);
  }
}

console.log("ready");
await Promise.all([1, 2, 3, 4].map(author));
await wiki.client.close();
