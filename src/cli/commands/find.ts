import type { Admin, MessageInfo, MessagePage, MessageSearch, MessageStatus } from "../../core/contracts.ts";
import { aggregateOf } from "../aggregate-flag.ts";
import { defineCommand, type Command } from "../command.ts";
import { formatTime } from "../format-values.ts";
import { messageRecord } from "../json-text.ts";
import { messageTable } from "../message-table.ts";
import { parseMoment } from "../parse-time.ts";
import { UsageError } from "../usage-error.ts";

const command = "find";
const STATUSES = ["scheduled", "pending", "processing", "published", "retrying", "dead"] as const;
/** What is rare may be far back: it is looked for this long, page by page. */
const LOOK_MS = 5000;
const PAGE = 1000;

export const findCommand: Command = defineCommand({
  name: command,
  summary: "look for messages, newest first, and see what became of them",
  usage: [
    "find --id ID | --key KEY | --aggregate [TYPE:]ID | --correlation ID",
    "find [--status STATUS] [--type TYPE] [--stream NAME] [--relay NAME] [--since 1h] [--until TIME] [--limit N]",
  ],
  about:
    "Id, key, aggregate and correlation are found by an index, however long the log is. All else is looked for from the newest\n" +
    "message back, for a few seconds; then the command says how far it looked, and how to go on. A message is shown as often as\n" +
    "there are relays for it; --limit counts messages. `txbox story ID` tells all about one of them.",
  flags: {
    id: { kind: "text", value: "ID", help: "a message by its id" },
    key: { kind: "text", value: "KEY", help: "messages of an ordering key" },
    aggregate: { kind: "text", value: "[TYPE:]ID", help: "messages of an aggregate" },
    correlation: { kind: "text", value: "ID", help: "messages of a chain" },
    stream: { kind: "text", value: "NAME", help: "of this stream" },
    type: { kind: "text", value: "TYPE", help: "of this type" },
    status: { kind: "text", value: "STATUS", choices: STATUSES, help: STATUSES.join(", ") },
    relay: { kind: "text", value: "NAME", help: "as this relay sees them" },
    since: { kind: "text", value: "TIME", help: "enqueued since: 1h, 7d or a time" },
    until: { kind: "text", value: "TIME", help: "enqueued before" },
    limit: { kind: "integer", min: 1, help: "at most this many messages (default 100)" },
    after: { kind: "text", value: "PLACE", help: "go on where the last call with the same flags ended" },
  },
  examples: [
    ["find --aggregate order:4711", "what became of an order's messages"],
    ["find --status dead --type payment_taken --since 1d", "payments that died since yesterday"],
    ["find --status retrying --json | jq -r '.messages[].errors[-1].error'", "what fails right now, and why"],
  ],
  async run(context, { flags }) {
    const { id, key, aggregate, correlation, stream, type, status, relay, since, until, after, limit = 100 } = flags;
    const query: MessageSearch = {
      ...(id === undefined ? {} : { id }),
      ...(key === undefined ? {} : { key }),
      ...(aggregate === undefined ? {} : aggregateOf(aggregate)),
      ...(correlation === undefined ? {} : { correlationId: correlation }),
      ...(stream === undefined ? {} : { stream }),
      ...(type === undefined ? {} : { type }),
      ...(status === undefined ? {} : { status: status as MessageStatus }),
      ...(relay === undefined ? {} : { relay }),
      ...(since === undefined ? {} : { since: parseMoment("--since", since, command) }),
      ...(until === undefined ? {} : { until: parseMoment("--until", until, command) }),
    };
    // A place is that of one search: a time that moves with the clock would make it another one.
    const moving = [since, until].find((text) => text !== undefined && !/^\d{4}-/.test(text));
    if (after !== undefined && moving !== undefined)
      throw new UsageError(`With --after, give the time as such: ${moving} is another time by now`, { command });
    const { admin } = (await context.open()).store;
    const { messages, next, lookedBackTo } = await lookFor(admin, query, limit, after);
    context.output.result({ messages: messages.map(messageRecord), next, lookedBackTo }, () =>
      messages.length === 0
        ? next === null
          ? "No such message.\n"
          : "No such message so far.\n"
        : messageTable(messages),
    );
    if (next === null) return;
    const far = lookedBackTo === null ? "" : `Looked back to ${formatTime(lookedBackTo)}. `;
    const times = [
      ["--since", query.since],
      ["--until", query.until],
    ].flatMap(([flag, time]) => (time instanceof Date ? [`${flag as string} ${time.toISOString()}`] : []));
    context.output.note(
      `${far}There may be more: --after ${next}${times.length === 0 ? "" : ` with ${times.join(" ")}`}`,
    );
  },
});

/** Page by page until there are enough messages, no more, or the time is over. */
async function lookFor(
  admin: Admin,
  query: MessageSearch,
  limit: number,
  from: string | undefined,
): Promise<MessagePage> {
  const endsAt = performance.now() + LOOK_MS;
  const messages: MessageInfo[] = [];
  let after = from;
  for (let left = limit; ;) {
    const place = after === undefined ? {} : { after };
    const page = await admin.search({ ...query, ...place, limit: Math.min(PAGE, left) });
    messages.push(...page.messages);
    left -= new Set(page.messages.map(({ id, position }) => `${position}/${id}`)).size;
    if (page.next === null || left <= 0 || performance.now() > endsAt) return { ...page, messages };
    after = page.next;
  }
}
