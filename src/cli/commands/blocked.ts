import type { Admin, BlockedKey, BlockedPlace, BlockedQuery } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { defineCommand, type Command } from "../command.ts";
import { formatTable } from "../format-table.ts";
import { formatAge, formatMs } from "../format-values.ts";
import { jsonText } from "../json-text.ts";
import { suggestion } from "../parse-flags.ts";

/** Keys are read and printed so many at a time. */
const PAGE = 500;

export const blockedCommand: Command = defineCommand({
  name: "blocked",
  summary: "keys that wait for a message to go through, and why",
  usage: ["blocked [--relay NAME] [--stream NAME] [--key KEY] [--limit N]"],
  about:
    'A key is blocked while its first message fails, or its target is out, or a dead letter holds it (onDead: "block"). Its later\n' +
    "messages wait; all other keys go on. A dead letter is requeued or discarded with `txbox dead`.",
  flags: {
    relay: { kind: "text", value: "NAME", help: "of this relay" },
    stream: { kind: "text", value: "NAME", help: "of this stream" },
    key: { kind: "text", value: "KEY", help: "only this key" },
    limit: { kind: "integer", min: 1, help: "at most this many (default 100)" },
  },
  examples: [
    ["blocked --relay to-rabbit", "what holds it up"],
    ["blocked --json --limit 100000 | jq '.blocked[] | select(.heldByDead)'", "keys that a dead letter holds"],
  ],
  async run(context, { flags }) {
    const { relay, stream, key, limit = 100 } = flags;
    const query: BlockedQuery = {
      ...(relay === undefined ? {} : { relay }),
      ...(stream === undefined ? {} : { stream }),
      ...(key === undefined ? {} : { key }),
    };
    const { output } = context;
    const { admin } = (await context.open()).store;
    // However many there are, only one page of them is in memory.
    const open = '{\n  "blocked": [';
    let found = 0;
    for await (const page of pages(admin, query, limit)) {
      const text = output.json
        ? page.map((one, i) => `${found + i === 0 ? open : ","}\n    ${jsonText(one)}`).join("")
        : `${found === 0 ? "" : "\n"}${blockedTable(page)}`;
      await output.piece(text);
      found += page.length;
    }
    if (found === 0 && relay !== undefined) await requireRelay(admin, relay);
    if (output.json) await output.piece(`${found === 0 ? open : "\n  "}]\n}\n`);
    else if (found === 0) output.text("No key is blocked.\n");
    else if (found >= limit) output.note(`There may be more than these ${limit}: see --limit.`);
  },
});

/** A misspelt relay must not look like one without blocked keys. */
async function requireRelay(admin: Admin, name: string): Promise<void> {
  const names = (await admin.relays()).map((relay) => relay.name);
  if (names.includes(name)) return;
  const fix = names.length === 0 ? "None has been started yet" : suggestion(name, names);
  throw new TxboxError("not_found", `There is no relay "${name}"`, { field: "relay", fix });
}

async function* pages(admin: Admin, query: BlockedQuery, limit: number): AsyncGenerator<BlockedKey[]> {
  let after: BlockedPlace | undefined;
  for (let left = limit; left > 0;) {
    const asked = Math.min(PAGE, left);
    const page = await admin.blocked({ ...query, limit: asked, ...(after === undefined ? {} : { after }) });
    if (page.length > 0) yield page;
    if (page.length < asked) return;
    left -= page.length;
    after = page.at(-1);
  }
}

function blockedTable(keys: readonly BlockedKey[]): string {
  return formatTable(keys, [
    { title: "relay", value: ({ relay }) => relay, max: 20 },
    { title: "stream", value: ({ stream }) => stream, max: 20 },
    { title: "key", value: ({ key }) => key, max: 24 },
    { title: "waiting", align: "right", value: ({ waiting }) => waiting },
    { title: "since", align: "right", value: ({ since }) => formatAge(since) },
    { title: "tries", align: "right", value: ({ attempts }) => attempts },
    { title: "next try", align: "right", value: nextTry },
    { title: "error of the message in front", value: ({ lastError }) => lastError, max: 60 },
  ]);
}

function nextTry({ heldByDead, nextAttemptAt }: BlockedKey): string | null {
  if (heldByDead) return "dead letter";
  if (nextAttemptAt === null) return null;
  const left = nextAttemptAt.getTime() - Date.now();
  return left <= 0 ? "now" : `in ${formatMs(left)}`;
}
