import { setTimeout as sleep } from "node:timers/promises";
import type { Activity, Admin, MessageQuery, RelayInfo, StoreFigures } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { isLive } from "../../core/live-processes.ts";
import { aggregateOf } from "../aggregate-flag.ts";
import type { CliContext } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { explainFailure } from "../explain-failure.ts";
import { formatTable } from "../format-table.ts";
import { formatAge, formatMs, formatRate, formatTime, plural } from "../format-values.ts";
import { messageRecord } from "../json-text.ts";
import { messageTable } from "../message-table.ts";
import { suggestion } from "../parse-flags.ts";
import { relayTable } from "../relay-table.ts";
import { stopSignal } from "../stop-signal.ts";
import { LATE, unlessStuck } from "../within.ts";
import { UsageError } from "../usage-error.ts";

export const statusCommand: Command = defineCommand({
  name: "status",
  summary: "relays and their backlog; or what became of a message",
  usage: [
    "status [--relay NAME] [--watch [SECONDS]]",
    "status --id ID | --key KEY | --aggregate [TYPE:]ID | --correlation ID",
  ],
  about:
    "The rate is that of the last minute, over all processes; rates and errors come from samples that are kept for a day.\n" +
    "Streams that no relay reads are looked for among the oldest and the newest messages.",
  flags: {
    watch: {
      kind: "seconds",
      fallback: 2,
      help: "show it again and again (default: every 2 s); with --json a line each time",
    },
    relay: { kind: "text", value: "NAME", help: "only this relay" },
    id: { kind: "text", value: "ID", help: "look up a message by its id" },
    key: { kind: "text", value: "KEY", help: "messages of an ordering key" },
    stream: { kind: "text", value: "NAME", help: "with --key: only this stream" },
    aggregate: { kind: "text", value: "[TYPE:]ID", help: "messages of an aggregate" },
    correlation: { kind: "text", value: "ID", help: "messages of a chain" },
    limit: { kind: "integer", min: 1, help: "at most this many messages (default 100)" },
  },
  examples: [
    ["status --watch", "keep an eye on the backlog"],
    ["status --json | jq '.relays[].pending'", "for a script"],
    ["status --aggregate order:4711", "what became of an order's messages"],
  ],
  async run(context, { flags }) {
    const query = messageQuery(flags);
    const { store } = await context.open();
    const show = async (): Promise<Snapshot> =>
      query === undefined ? relays(store.admin, flags.relay) : messages(store.admin, query);
    if (flags.watch === undefined) {
      const { value, text } = await show();
      context.output.result(value, () => text);
      return;
    }
    await watch(context, show, flags.watch * 1000);
  },
});

interface Snapshot {
  readonly value: object;
  readonly text: string;
}

interface QueryFlags {
  readonly id?: string;
  readonly key?: string;
  readonly stream?: string;
  readonly aggregate?: string;
  readonly correlation?: string;
  readonly relay?: string;
  readonly limit?: number;
}

function messageQuery({ id, key, stream, aggregate, correlation, relay, limit }: QueryFlags): MessageQuery | undefined {
  if (id === undefined && key === undefined && aggregate === undefined && correlation === undefined) {
    const stray = stream === undefined ? (limit === undefined ? undefined : "--limit") : "--stream";
    if (stray !== undefined)
      throw new UsageError(`${stray} goes with --id, --key, --aggregate or --correlation`, { command: "status" });
    return undefined;
  }
  return {
    ...(id === undefined ? {} : { id }),
    ...(key === undefined ? {} : { key }),
    ...(stream === undefined ? {} : { stream }),
    ...(aggregate === undefined ? {} : aggregateOf(aggregate)),
    ...(correlation === undefined ? {} : { correlationId: correlation }),
    ...(relay === undefined ? {} : { relay }),
    ...(limit === undefined ? {} : { limit }),
  };
}

async function relays(admin: Admin, only: string | undefined): Promise<Snapshot> {
  const { relays: all, ...figures } = await admin.figures();
  const shown = only === undefined ? all : all.filter(({ name }) => name === only);
  if (only !== undefined && shown.length === 0) {
    const fix =
      all.length === 0
        ? "None has been started yet"
        : suggestion(
            only,
            all.map(({ name }) => name),
          );
    throw new TxboxError("not_found", `There is no relay "${only}"`, { field: "relay", fix });
  }
  const { scheduled, unread } = figures;
  const activity = figures.activity.filter(({ relay }) => only === undefined || relay === only);
  const text =
    shown.length === 0
      ? "No relay has been started yet: `txbox relay NAME`.\n"
      : `${relayTable(shown, activity)}\n${ownersText(shown)}`;
  const more = [consumersText(activity), errorsText(activity), ...(only === undefined ? [waitingText(figures)] : [])];
  return {
    value: { relays: shown, activity, scheduled, unread },
    text: [text, ...more.filter((part) => part !== "")].join("\n"),
  };
}

function consumersText(activity: readonly Activity[]): string {
  const consumers = activity.filter(({ consumer }) => consumer !== null);
  if (consumers.length === 0) return "";
  return formatTable(consumers, [
    { title: "consumer", value: ({ consumer }) => consumer },
    { title: "rate", align: "right", value: ({ perSecond }) => formatRate(perSecond) },
  ]);
}

function errorsText(activity: readonly Activity[]): string {
  const failed = activity.filter(({ lastError }) => lastError !== null);
  if (failed.length === 0) return "";
  return formatTable(failed, [
    { title: "last error of", value: ({ relay, consumer }) => relay ?? `consumer ${consumer}` },
    { title: "when", align: "right", value: ({ lastErrorAt }) => formatAge(lastErrorAt) },
    { title: "error", value: ({ lastError }) => lastError, max: 80 },
  ]);
}

function waitingText({ scheduled, unread }: Pick<StoreFigures, "scheduled" | "unread">): string {
  const { count, estimated, nextAt } = scheduled;
  const lines: string[] = [];
  if (count > 0) {
    const next = nextAt === null ? "" : `, the next one due ${formatTime(nextAt)}`;
    lines.push(`${estimated ? "About " : ""}${plural(count, "scheduled message")}${next}.\n`);
  }
  if (unread.length > 0) {
    lines.push("No relay reads these streams, so nothing delivers their messages:\n");
    lines.push(
      formatTable(unread, [
        { title: "stream", value: ({ stream }) => stream, max: 40 },
        { title: "oldest", align: "right", value: ({ oldestAgeMs }) => formatMs(oldestAgeMs) },
      ]),
    );
  }
  return lines.join("");
}

function ownersText(all: readonly RelayInfo[]): string {
  const owners = all.flatMap(({ name, lanes }) => lanes.filter(isLive).map((lane) => ({ name, ...lane })));
  if (owners.length === 0) return "No relay process runs.\n";
  return formatTable(owners, [
    { title: "relay", value: ({ name }) => name },
    { title: "process", value: ({ owner }) => owner },
    { title: "lanes", align: "right", value: ({ lanes }) => lanes },
    { title: "lease ends in", align: "right", value: ({ leaseMs }) => formatMs(leaseMs) },
    ...(owners.some(({ source }) => source !== undefined)
      ? [{ title: "source", value: ({ source = "polling" }: (typeof owners)[number]) => source, max: 100 }]
      : []),
  ]);
}

async function messages(admin: Admin, query: MessageQuery): Promise<Snapshot> {
  const found = await admin.find(query);
  const text = found.length === 0 ? "No such message.\n" : messageTable(found);
  return { value: { messages: found.map(messageRecord) }, text };
}

async function watch(context: CliContext, show: () => Promise<Snapshot>, everyMs: number): Promise<void> {
  const { output } = context;
  const stop = stopSignal();
  process.stdout.once("error", () => process.exit(0));
  while (!stop.aborted) {
    try {
      const shown = await unlessStuck(stop, show(), 0);
      if (shown === LATE) return;
      const { value, text } = shown;
      if (output.json) output.line({ at: new Date().toISOString(), ...value });
      else {
        output.clearScreen();
        output.text(`${new Date().toISOString()}\n\n${text}\n`);
      }
    } catch (error) {
      // A database that restarts comes back; what is wrong with the request stays wrong.
      if (error instanceof UsageError || error instanceof TxboxError) throw error;
      output.note(`txbox: ${explainFailure(error, await context.where()).message}`);
    }
    await sleep(everyMs, undefined, { signal: stop }).catch(() => undefined);
  }
}
