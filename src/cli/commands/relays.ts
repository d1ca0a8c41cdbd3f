import type { Admin, RewindTarget } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { printable } from "../../core/printable.ts";
import { adminBy, AUTHOR_FLAGS } from "../author-flags.ts";
import type { CliContext } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { confirm } from "../confirm.ts";
import { EXIT } from "../exit-code.ts";
import { plural } from "../format-values.ts";
import { suggestion } from "../parse-flags.ts";
import { relayTable } from "../relay-table.ts";
import { noMore, refuseFlags, subcommand } from "../subcommand.ts";
import { UsageError } from "../usage-error.ts";

export const relaysCommand: Command = defineCommand({
  name: "relays",
  summary: "list, pause, resume, rewind and drop relays",
  usage: [
    "relays list",
    "relays pause NAME",
    "relays resume NAME",
    "relays rewind NAME --to earliest|now|POSITION|TIME [--yes]",
    "relays drop NAME [--yes]",
  ],
  about:
    "A rewound relay publishes again what comes after the point; an inbox drops what it has seen. Rewinding to now skips what is\n" +
    "pending. A dropped relay loses its place, its dead letters and what it had parked; started again, it begins anew.",
  words: true,
  flags: {
    to: {
      kind: "text",
      value: "POINT",
      help: 'earliest, now, a position ("42", "position 42") or a time ("2026-01-31T08:00:00Z")',
    },
    yes: { kind: "switch", help: "do not ask" },
    ...AUTHOR_FLAGS,
  },
  examples: [
    ["relays pause to-rabbit", "its processes finish what they hold and wait"],
    ["relays rewind search --to earliest", "feed a new search index from the whole log"],
    ["relays rewind search --to 2026-01-31T08:00:00Z", "repeat what was enqueued since"],
    ["relays drop search --yes", "it holds back retention no longer"],
  ],
  async run(context, { flags, positionals }) {
    const { name: what, rest } = subcommand("relays", positionals, ["list", "pause", "resume", "rewind", "drop"]);
    if (what !== "rewind") refuseFlags("relays", flags, ["to"], "relays rewind");
    if (what !== "rewind" && what !== "drop") refuseFlags("relays", flags, ["yes"], "relays rewind and relays drop");
    if (what === "list") {
      refuseFlags("relays", flags, ["actor", "reason"], "relays pause, resume, rewind and drop");
      noMore("relays", rest);
      return list(context);
    }
    const [relay, ...more] = rest;
    if (relay === undefined) throw new UsageError(`Which relay? txbox relays ${what} NAME`, { command: "relays" });
    const target = what === "rewind" ? targetOf(flags.to, more) : undefined;
    if (target === undefined) noMore("relays", more);
    const admin = adminBy((await context.open()).store.admin, flags);
    await requireRelay(admin, relay);
    const question =
      target === undefined ? await dropQuestion(admin, relay, what) : await skipQuestion(admin, relay, target);
    if (question !== undefined && !(await confirm(question, flags.yes, "relays"))) {
      context.output.note("Nothing was changed.");
      return EXIT.failed;
    }
    if (target !== undefined) await admin.rewind(relay, target);
    else if (what !== "rewind") await admin[what](relay);
    context.output.result({ relay, done: what, ...(target === undefined ? {} : { to: target }) }, () =>
      DONE[what](printable(relay)),
    );
    return EXIT.ok;
  },
});

const DONE: Readonly<Record<"pause" | "resume" | "rewind" | "drop", (relay: string) => string>> = {
  pause: (relay) => `Relay "${relay}" is paused; its processes finish what they hold.\n`,
  resume: (relay) => `Relay "${relay}" goes on.\n`,
  rewind: (relay) => `Relay "${relay}" goes on from there.\n`,
  drop: (relay) => `Relay "${relay}" is gone.\n`,
};

async function list(context: CliContext): Promise<void> {
  const { store } = await context.open();
  const relays = await store.admin.relays();
  context.output.result({ relays }, () =>
    relays.length === 0 ? "No relay has been started yet: `txbox relay NAME`.\n" : relayTable(relays),
  );
}

async function requireRelay(admin: Admin, relay: string): Promise<void> {
  const names = (await admin.relays()).map(({ name }) => name);
  if (names.includes(relay)) return;
  const hint = names.length === 0 ? "None has been started yet" : suggestion(relay, names);
  throw new TxboxError("not_found", `There is no relay "${relay}"`, { field: "relay", fix: hint });
}

async function figures(admin: Admin, relay: string): Promise<{ pending: number; dead: number }> {
  return (await admin.relays()).find(({ name }) => name === relay) ?? { pending: 0, dead: 0 };
}

async function dropQuestion(admin: Admin, relay: string, what: string): Promise<string | undefined> {
  if (what !== "drop") return undefined;
  const { pending, dead } = await figures(admin, relay);
  return `Drop relay "${relay}" with its place in the log, ${plural(pending, "pending message")} and ${plural(dead, "dead letter")}?`;
}

async function skipQuestion(admin: Admin, relay: string, target: RewindTarget): Promise<string | undefined> {
  if (target !== "now") return undefined;
  const { pending } = await figures(admin, relay);
  return pending === 0 ? undefined : `Let relay "${relay}" skip ${plural(pending, "pending message")}?`;
}

/** `--to now`, `--to 42`, `--to position 42`, `--to 2026-01-31T08:00Z`, `--to time 2026-01-31T08:00Z`. */
function targetOf(to: string | undefined, more: readonly string[]): RewindTarget {
  const fail = (message: string): never => {
    throw new UsageError(message, { command: "relays" });
  };
  if (to === undefined) return fail("Rewind to where? --to earliest, now, a position or a time");
  const kind = to === "position" || to === "time" ? to : undefined;
  const [text = to, ...rest] = kind === undefined ? [to, ...more] : more;
  noMore("relays", rest);
  if (text === "earliest" || text === "now") return text;
  if (kind !== "time" && /^\d{1,18}$/.test(text)) return { position: BigInt(text) };
  const time = new Date(text);
  if (kind === "position" || !/^\d{4}-\d{2}-\d{2}/.test(text) || Number.isNaN(time.getTime())) {
    return fail(
      `--to cannot be "${[to, ...more].join(" ")}". Use earliest, now, a position such as 42, or a time such as 2026-01-31T08:00:00Z`,
    );
  }
  return { time };
}
