import type { Publisher } from "../../core/contracts.ts";
import { printable } from "../../core/printable.ts";
import { replay, type ReplayReport } from "../../relay/replay.ts";
import type { ReplayFilter, ReplayOptions, ReplayProgress } from "../../relay/replay-options.ts";
import { replayFrom, type ReplayFrom } from "../archive-files.ts";
import type { CliContext } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { confirm } from "../confirm.ts";
import { EXIT } from "../exit-code.ts";
import { formatTable } from "../format-table.ts";
import { formatTime, plural } from "../format-values.ts";
import { requirePostgres } from "../open-store.ts";
import { suggestion } from "../parse-flags.ts";
import { parseMoment } from "../parse-time.ts";
import { createStdoutPublisher } from "../stdout-publisher.ts";
import { stopSignal } from "../stop-signal.ts";
import { UsageError } from "../usage-error.ts";
import { LATE, unlessStuck, within } from "../within.ts";
import { madePublisher } from "./relay.ts";

const DEFAULT_RATE = 100;
const PROGRESS_MS = 2000;
const CLOSE_MS = 3000;
const WITH_DEAD = "An archive has all messages of its time, also those that became dead letters or were discarded.";

export const replayCommand: Command = defineCommand({
  name: "replay",
  summary: "send messages of an archive or of the log again",
  usage: ["replay --from FILE|FOLDER|TIME --to RELAY [filters] [--rate N] [--dry-run] [--new-ids] [--yes]"],
  about:
    "Sends straight to the publisher of a relay of the configuration, in order, each message once; the place of the relay in the\n" +
    "log does not change. From the log goes only what that relay has delivered: the rest it delivers by itself. An archive has\n" +
    "all messages of its time: those that became dead letters or were discarded are sent too. All is read\n" +
    "before the first message is sent: an archive that was cut or changed is refused with the line.\n" +
    "Messages carry the headers replayOf and replayedAt. Inboxes drop what they have receipts for, and refuse ids that are older\n" +
    "than their receipts: with --new-ids each message gets an id made of its old one, the same each time, so that repeating a\n" +
    "replay does not double it.",
  flags: {
    from: {
      kind: "text",
      value: "FILE|FOLDER|TIME",
      help: "an archive, a folder of them, or the log since 2026-03-01T12:00:00Z or 2h",
    },
    to: { kind: "text", value: "RELAY", help: "the relay of the configuration whose publisher sends them" },
    publisher: { kind: "text", choices: ["stdout"], help: "instead of the configured one: print messages as NDJSON" },
    until: { kind: "text", value: "TIME", help: "only what was enqueued before (default: now)" },
    stream: { kind: "list", help: "only these streams (default: those of the relay)" },
    type: { kind: "text", value: "TYPE", help: "only this message type" },
    key: { kind: "text", value: "KEY", help: "only this ordering key" },
    aggregate: { kind: "text", value: "[TYPE:]ID", help: "only this aggregate" },
    correlation: { kind: "text", value: "ID", help: "only this chain" },
    id: { kind: "text", value: "ID", help: "only this message" },
    after: { kind: "position", help: "only what follows this position: goes on where a replay stopped" },
    rate: { kind: "integer", min: 1, help: `messages per second (default ${DEFAULT_RATE})` },
    "dry-run": { kind: "switch", help: "say how many there are and send nothing" },
    "new-ids": { kind: "switch", help: "give each message an id made of its old one" },
    "include-replays": { kind: "switch", help: "also messages that are replays themselves" },
    yes: { kind: "switch", help: "do not ask" },
  },
  examples: [
    ["replay --from /var/lib/txbox --to to-search --dry-run", "what is in the archives of a folder"],
    ["replay --from 2h --to to-rabbit --stream orders --rate 50 --yes", "orders of the last two hours again"],
  ],
  async run(context, { flags }) {
    const { from, to } = flags;
    if (from === undefined) throw wrong("Replay what? Give --from FILE, a folder, or a time");
    if (to === undefined) throw wrong("Replay where to? Give --to RELAY, a relay of the configuration");
    const source = await replayFrom(context.cwd, from);
    const until = flags.until === undefined ? new Date() : parseMoment("--until", flags.until, "replay");
    const { output } = context;
    if ("files" in source && source.missing.length > 0)
      output.note(
        `txbox: there is no archive of ${source.missing.join(", ")}: messages between the others may be missing`,
      );
    const open = await publisherOf(context, to, flags.publisher === "stdout");
    const streams = flags.stream ?? (await streamsOf(context, to));
    const options: ReplayOptions = {
      ...(await sourceOf(context, source, until, to)),
      publisher: UNUSED,
      filter: { ...filterOf(flags), ...(streams === undefined ? {} : { streams }), until },
      rate: flags.rate ?? DEFAULT_RATE,
      newIds: flags["new-ids"] === true,
      includeReplays: flags["include-replays"] === true,
    };
    if (flags["dry-run"] === true) return show(context, await replay({ ...options, dryRun: true }));
    if (flags.yes !== true) {
      const found = await replay({ ...options, dryRun: true });
      if (found.found === 0) return show(context, found);
      output.note(`${plural(found.found, "message")} of ${Object.keys(found.streams).join(", ")}, ${spanText(found)}`);
      if ("files" in source) output.note(WITH_DEAD);
      if (!(await confirm(`Send them to the publisher of ${to}?`, false, "replay"))) {
        output.note("Nothing was sent.");
        return EXIT.failed;
      }
    }
    const signal = stopSignal();
    const publisher = await open();
    try {
      const { after = 0n } = flags;
      let reached = after;
      const tell = progressOf(context);
      const onProgress = (progress: ReplayProgress): void => {
        reached = progress.position;
        tell(progress);
      };
      const report = await unlessStuck(signal, replay({ ...options, publisher, signal, onProgress }));
      if (report !== LATE) return show(context, report, { after });
      output.note(`txbox: it was stopped while something gave no answer. Go on with --after ${reached}`);
      return EXIT.failed;
    } finally {
      await within(CLOSE_MS, Promise.resolve(publisher.close?.()));
    }
  },
});

/** For a look that sends nothing. */
const UNUSED: Publisher = {
  keepsKeyOrder: true,
  publish: () => Promise.reject(new Error("This publisher sends nothing")),
};

interface FilterFlags {
  readonly type?: string;
  readonly key?: string;
  readonly aggregate?: string;
  readonly correlation?: string;
  readonly id?: string;
  readonly after?: bigint;
}

function filterOf({ type, key, aggregate, correlation, id, after }: FilterFlags): ReplayFilter {
  const colon = aggregate?.indexOf(":") ?? -1;
  return {
    ...(type === undefined ? {} : { type }),
    ...(key === undefined ? {} : { key }),
    ...(aggregate === undefined ? {} : { aggregateId: aggregate.slice(colon + 1) }),
    ...(aggregate === undefined || colon === -1 ? {} : { aggregateType: aggregate.slice(0, colon) }),
    ...(correlation === undefined ? {} : { correlationId: correlation }),
    ...(id === undefined ? {} : { id }),
    ...(after === undefined ? {} : { after }),
  };
}

/** The relay must be there before anything is read; its publisher is made when it is needed. */
async function publisherOf(context: CliContext, to: string, stdout: boolean): Promise<() => Promise<Publisher>> {
  if (stdout) return async () => createStdoutPublisher(context.output);
  const { config, file } = await context.loadConfig();
  const known = Object.keys(config.relays ?? {});
  const relay = Object.hasOwn(config.relays ?? {}, to) ? config.relays?.[to] : undefined;
  if (relay === undefined) {
    if (file === undefined)
      throw wrong(`Where does "${to}" publish? Describe it in txbox.config.ts, or try --publisher stdout`);
    throw wrong(
      `The configuration has no relay "${to}". ${known.length === 0 ? "It has none" : suggestion(to, known)}`,
    );
  }
  return async () => {
    const publisher = await madePublisher(context, `relays.${to}.publisher()`, relay.publisher);
    if (publisher === undefined) throw wrong(`Relay "${to}" has no publisher`);
    return publisher;
  };
}

/** As the relay would read: its streams, or all but what inboxes have stored. */
async function streamsOf(context: CliContext, to: string): Promise<readonly string[] | undefined> {
  return (await context.loadConfig()).config.relays?.[to]?.streams;
}

async function sourceOf(
  context: CliContext,
  source: ReplayFrom,
  until: Date,
  to: string,
): Promise<Pick<ReplayOptions, "from">> {
  if ("files" in source) return { from: source.files };
  const store = requirePostgres((await context.open()).store);
  return { from: () => store.readLog({ since: source.since, until, deliveredBy: to }) };
}

function progressOf({ output }: CliContext): (progress: ReplayProgress) => void {
  let toldAt = performance.now();
  return ({ sent, found, position }) => {
    if (performance.now() - toldAt < PROGRESS_MS) return;
    toldAt = performance.now();
    output.note(`Sent ${sent.toLocaleString("en-US")} of ${plural(found, "message")}, up to position ${position}`);
  };
}

/** `sending` is left out after a mere look. */
function show({ output }: CliContext, report: ReplayReport, sending?: { after: bigint }): number {
  const dryRun = sending === undefined;
  const { sent, rejected, stopped, position } = report;
  output.result({ dryRun, ...report }, () => {
    if (dryRun || report.found === 0) return surveyText(report);
    const lines = [`Sent ${plural(sent, "message")}.`];
    if (rejected.count > 0) lines.push(`The target refused ${plural(rejected.count, "message")} for good:`);
    for (const { id, error } of rejected.first) lines.push(`  ${printable(id)}  ${printable(error)}`);
    if (stopped) lines.push(`It was stopped. Go on with --after ${String(position ?? sending.after)}.`);
    return `${lines.join("\n")}\n`;
  });
  return stopped || rejected.count > 0 ? EXIT.failed : EXIT.ok;
}

function surveyText({ found, unreadable, streams, firstAt, lastAt }: ReplayReport): string {
  const lost = unreadable === 0 ? "" : `${plural(unreadable, "line")} of the archive cannot be read as messages.\n`;
  if (found === 0) return `No message matches.\n${lost}`;
  const table = formatTable(Object.entries(streams), [
    { title: "stream", value: ([stream]) => stream },
    { title: "messages", align: "right", value: ([, count]) => count },
  ]);
  return `${plural(found, "message")}, ${spanText({ firstAt, lastAt })}\n\n${table}${lost}`;
}

function spanText({ firstAt, lastAt }: Pick<ReplayReport, "firstAt" | "lastAt">): string {
  return `enqueued from ${formatTime(firstAt)} to ${formatTime(lastAt)}`;
}

function wrong(message: string): UsageError {
  return new UsageError(message, { command: "replay" });
}
