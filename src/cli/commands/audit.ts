import { audit } from "../../audit/audit.ts";
import { type AuditOptions, DEFAULT_GRACE_MS, DEFAULT_RATE } from "../../audit/audit-options.ts";
import type { AuditProgress, AuditReport } from "../../audit/audit-report.ts";
import type { Publisher } from "../../core/contracts.ts";
import { printable } from "../../core/printable.ts";
import type { CliContext } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { confirm } from "../confirm.ts";
import { EXIT } from "../exit-code.ts";
import { formatTable } from "../format-table.ts";
import { formatMs, formatTime, plural } from "../format-values.ts";
import { suggestion } from "../parse-flags.ts";
import { parseDuration, parseMoment } from "../parse-time.ts";
import { stopSignal } from "../stop-signal.ts";
import { UsageError } from "../usage-error.ts";
import { within } from "../within.ts";
import { madePublisher } from "./relay.ts";

/** How often a long run tells where it is. */
const TELL_MS = 5000;
const CLOSE_MS = 3000;
const command = "audit";

export const auditCommand: Command = defineCommand({
  name: command,
  summary: "compare what was published with what was received",
  usage: [
    "audit [--from STORE] [--to STORE] --consumer NAME [--since 24h] [--types A,B] [--requeue [--rate N] [--yes]]",
  ],
  about:
    "Looks for the receipt of every message that a relay published: missing, failed, not yet handled, late. STORE is a database\n" +
    "URL or a name of `stores` in the configuration; left out, it is the own store. Name the types that the consumer handles:\n" +
    "those it skips leave no receipt. A message counts by the time at which it was enqueued. --requeue sends the missing ones\n" +
    "again by the publisher of the relay, under their ids and with the headers replayOf and replayedAt; it asks first.",
  flags: {
    from: { kind: "text", value: "STORE", help: "where the messages were published" },
    to: { kind: "text", value: "STORE", help: "where the receipts are" },
    consumer: { kind: "text", value: "NAME", help: "whose receipts" },
    relay: { kind: "text", value: "NAME", help: "the relay that feeds it (default: the only one for these streams)" },
    streams: { kind: "list", help: "only these streams" },
    types: { kind: "list", help: "only these types of messages" },
    since: { kind: "text", value: "TIME", help: "how far back: 1h, 7d or a time (default 24h)" },
    until: { kind: "text", value: "TIME", help: "up to when (default: now)" },
    grace: { kind: "text", value: "TIME", help: "younger ones may be on their way (default 5m)" },
    late: { kind: "text", value: "TIME", help: "also report what was handled later than this" },
    requeue: { kind: "switch", help: "send the missing ones again" },
    rate: { kind: "integer", min: 1, help: `so many of them a second (default ${DEFAULT_RATE})` },
    yes: { kind: "switch", help: "send without being asked" },
    limit: { kind: "integer", min: 0, help: "list at most this many findings (default 1000); all are counted" },
  },
  examples: [
    [
      "audit --from orders --to payments --consumer payments --types order_placed",
      "names of the configuration; for cron and CI",
    ],
    [
      "audit --to mongodb://payments/app --consumer payments --since 7d --late 5m",
      "from the own store, with what came late",
    ],
    ["audit --to payments --consumer payments --since 2h --requeue --yes", "and send again what was lost"],
  ],
  async run(context, { flags }) {
    const { consumer } = flags;
    if (consumer === undefined) throw new UsageError("Whose receipts? Give --consumer NAME", { command });
    for (const flag of ["rate", "yes"] as const)
      if (flags[flag] !== undefined && flags.requeue !== true)
        throw new UsageError(`--${flag} goes with --requeue`, { command });
    const since = parseMoment("--since", flags.since ?? "24h", command);
    const times = {
      until: flags.until === undefined ? new Date() : parseMoment("--until", flags.until, command),
      graceMs: flags.grace === undefined ? DEFAULT_GRACE_MS : parseDuration("--grace", flags.grace, command),
      ...(flags.late === undefined ? {} : { lateMs: parseDuration("--late", flags.late, command) }),
    };
    const relay = flags.requeue === true ? await requeueRelay(context, flags.relay) : flags.relay;
    const from = await context.openOther(flags.from, "--from");
    const to = await context.openOther(flags.to, "--to");
    context.output.note(`Auditing ${from.where} against the receipts of ${consumer} in ${to.where} …`);
    const options: AuditOptions = {
      from: from.store,
      to: to.store,
      consumer,
      since,
      ...times,
      ...(relay === undefined ? {} : { relay }),
      ...(flags.streams === undefined ? {} : { streams: flags.streams }),
      ...(flags.types === undefined ? {} : { types: flags.types }),
      ...(flags.limit === undefined ? {} : { limit: flags.limit }),
      ...(flags.rate === undefined ? {} : { rate: flags.rate }),
      signal: stopSignal(),
      onProgress: telling(context),
    };
    const isAsked = flags.requeue === true && flags.yes !== true;
    const looked = isAsked ? await audit(options) : undefined;
    if (looked !== undefined && looked.missing > 0) {
      const question = `Send ${plural(looked.missing, "missing message")} to the publisher of ${relay} again?`;
      if (!(await confirm(question, false, command))) {
        context.output.result(looked, () => textOf(looked));
        context.output.note("Nothing was sent.");
        return EXIT.failed;
      }
    }
    const isSent = flags.requeue === true && relay !== undefined && looked?.missing !== 0;
    const requeue = isSent ? await publisherOf(context, relay) : undefined;
    try {
      const report =
        looked?.missing === 0 ? looked : await audit({ ...options, ...(requeue === undefined ? {} : { requeue }) });
      context.output.result(report, () => textOf(report));
      if (report.requeued !== null && report.requeued.failed > 0) {
        context.output.note(`txbox: ${report.requeued.failed} of the missing messages were not sent again`);
        return EXIT.failed;
      }
      const limits = [flags.streams && "streams", flags.types && "types"].filter((one) => one !== undefined);
      if (report.checked === 0 && limits.length > 0)
        context.output.note(
          `txbox: No message of these ${limits.join(" and ")} was enqueued in that time. Are the names right?`,
        );
      if (report.clean) return EXIT.ok;
      context.output.note("txbox: not everything has arrived, or could be judged");
      return EXIT.found;
    } finally {
      await within(CLOSE_MS, Promise.resolve(requeue?.close?.()));
    }
  },
});

async function requeueRelay(context: CliContext, named: string | undefined): Promise<string> {
  const known = Object.keys((await context.loadConfig()).config.relays ?? {});
  const relay = named ?? (known.length === 1 ? known[0] : undefined);
  if (relay !== undefined && known.includes(relay)) return relay;
  const hint =
    known.length === 0
      ? "It has none"
      : relay === undefined
        ? `Give --relay: ${known.join(", ")}`
        : suggestion(relay, known);
  throw new UsageError(`--requeue sends by a relay of the configuration. ${hint}`, { command });
}

async function publisherOf(context: CliContext, relay: string): Promise<Publisher> {
  const { publisher } = (await context.loadConfig()).config.relays![relay]!;
  const made = await madePublisher(context, `relays.${relay}.publisher()`, publisher);
  if (made === undefined) throw new UsageError(`Relay "${relay}" has no publisher`, { command });
  return made;
}

function telling({ output }: CliContext): (progress: AuditProgress) => void {
  let last = performance.now();
  return ({ checked, missing, at }) => {
    if (performance.now() - last < TELL_MS) return;
    last = performance.now();
    output.note(`${plural(checked, "message")} looked at, up to ${formatTime(at) ?? "…"}; ${missing} missing`);
  };
}

function textOf(report: AuditReport): string {
  const { checked, arrived, underway, unsent, skipped, unjudged, keptSince, backlog, findings, requeued } = report;
  const found = report.missing + report.failed + report.unhandled + report.late + report.dead;
  const lines = [
    `Relay ${printable(report.relay)}, consumer ${printable(report.consumer)}, ${formatTime(report.since)} to ${formatTime(report.until)}`,
    `${plural(checked, "message")}: ${arrived} arrived, ${underway} on their way, ${report.missing} missing, ${report.failed} failed, ${report.unhandled} not handled yet, ${report.late} late, ${report.dead} dead`,
  ];
  if (unsent > 0 || backlog.pending > 0)
    lines.push(
      `${plural(backlog.pending, "message")} not published yet${backlog.oldestAgeMs === null ? "" : `, the first for ${formatMs(backlog.oldestAgeMs)}`}`,
    );
  if (skipped > 0)
    lines.push(`${plural(skipped, "message")} left out by the relay: a new start, a rewind to now or a rebase`);
  if (unjudged > 0) lines.push(`${plural(unjudged, "message")} cannot be judged: their receipts are past their time`);
  if (keptSince !== null)
    lines.push(`Messages from before ${formatTime(keptSince)} cannot be judged: they may be gone from the log`);
  if (requeued !== null)
    lines.push(
      `Sent ${plural(requeued.sent, "message")} again${requeued.failed === 0 ? "" : `, ${requeued.failed} not: ${printable(requeued.error ?? "refused")}`}`,
    );
  if (findings.length < found) lines.push(`The first ${findings.length} of ${found}:`);
  const table =
    findings.length === 0
      ? ""
      : `\n${formatTable(findings, [
          { title: "what", value: ({ outcome }) => outcome },
          { title: "id", value: ({ id }) => id },
          { title: "stream", value: ({ stream }) => stream },
          { title: "type", value: ({ type }) => type },
          { title: "key", value: ({ key }) => key, max: 30 },
          { title: "enqueued", value: ({ createdAt }) => formatTime(createdAt) },
          { title: "took", align: "right", value: ({ tookMs }) => (tookMs === null ? null : formatMs(tookMs)) },
          { title: "last error", value: ({ lastError }) => lastError, max: 60 },
        ])}`;
  return `${lines.join("\n")}\n${table}`;
}
