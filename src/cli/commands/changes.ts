import type { Change, ChangeQuery } from "../../core/contracts.ts";
import { defineCommand, type Command } from "../command.ts";
import { formatTable } from "../format-table.ts";
import { formatTime } from "../format-values.ts";
import { jsonText } from "../json-text.ts";
import { parseMoment } from "../parse-time.ts";

const PAGE = 500;

export const changesCommand: Command = defineCommand({
  name: "changes",
  summary: "who changed what, and why",
  usage: ["changes [--relay NAME] [--since TIME] [--limit N]"],
  about:
    "What people did to dead letters and relays, newest first: requeue, redrive, discard, edit, pause, resume, rewind, drop. Each is\n" +
    "written together with the change itself, and kept for a year. --actor and --reason of those commands are what is shown here.",
  flags: {
    relay: { kind: "text", value: "NAME", help: "of this relay" },
    since: { kind: "text", value: "TIME", help: "since 2026-01-31T08:00:00Z, or 2h" },
    limit: { kind: "integer", min: 1, help: "at most this many (default 100)" },
  },
  examples: [
    ["changes --since 1d", "since yesterday"],
    ["changes --relay to-rabbit --json", "all of a relay, for a script"],
  ],
  async run(context, { flags }) {
    const { relay, limit = 100 } = flags;
    const query: ChangeQuery = {
      ...(relay === undefined ? {} : { relay }),
      ...(flags.since === undefined ? {} : { since: parseMoment("--since", flags.since, "changes") }),
    };
    const { admin } = (await context.open()).store;
    const changes: Change[] = [];
    let next: string | null | undefined;
    do {
      const asked = Math.min(PAGE, limit - changes.length);
      const page = await admin.changes({ ...query, limit: asked, ...(next == null ? {} : { after: next }) });
      changes.push(...page.changes);
      next = page.next;
    } while (next !== null && changes.length < limit);
    context.output.result({ changes }, () => (changes.length === 0 ? "Nothing was changed.\n" : changeTable(changes)));
    if (next !== null) context.output.note(`There are more than these ${changes.length}: see --limit.`);
  },
});

function changeTable(changes: readonly Change[]): string {
  return formatTable(changes, [
    { title: "time", value: ({ at }) => formatTime(at) },
    { title: "actor", value: ({ actor }) => actor, max: 30 },
    { title: "action", value: ({ action }) => action },
    { title: "relay", value: ({ relay }) => relay, max: 20 },
    { title: "letters", align: "right", value: ({ count }) => count },
    { title: "reason", value: ({ reason }) => reason, max: 50 },
    {
      title: "details",
      value: ({ details }) => (Object.keys(details).length === 0 ? null : jsonText(details)),
      max: 60,
    },
  ]);
}
