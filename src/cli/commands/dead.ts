import type {
  Admin,
  DeadChoice,
  DeadFilter,
  DeadGroupQuery,
  DeadLetter,
  DeadPlace,
  DeadQuery,
} from "../../core/contracts.ts";
import { printable } from "../../core/printable.ts";
import { adminBy, AUTHOR_FLAGS, type AuthorValues } from "../author-flags.ts";
import type { CliContext } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { confirm } from "../confirm.ts";
import { deadDetails, deadTable, groupTable } from "../dead-table.ts";
import { editLetter, noSuchLetter } from "../edit-letter.ts";
import { EXIT } from "../exit-code.ts";
import { plural } from "../format-values.ts";
import { jsonText, messageRecord } from "../json-text.ts";
import { isLive } from "../../core/live-processes.ts";
import { redriveLetters } from "../redrive-letters.ts";
import { noMore, refuseFlags, subcommand } from "../subcommand.ts";
import { UsageError } from "../usage-error.ts";

/** Letters are read and printed so many at a time. */
const PAGE = 500;
/** Before several are discarded they are counted, up to here. */
const COUNTED = 10_000;

const ELSEWHERE =
  "Looked at: letters of relays. Those of a consumer that reads a broker are in that broker (txbox dead --help)";

export const deadCommand: Command = defineCommand({
  name: "dead",
  summary: "group, list, show, edit, requeue, redrive and discard dead letters",
  usage: [
    "dead list [filters] [--state dead|requeued|discarded]",
    "dead groups [--relay NAME] [--stream NAME] [--type TYPE]",
    "dead show ID | --position N [--relay NAME] [--original]",
    "dead requeue ID… | filters | --all",
    "dead redrive filters | --all --rate N [--start-at TIME] [--rounds N]",
    "dead edit ID [--relay NAME] [--payload FILE] [--headers FILE] [--requeue]",
    "dead discard ID… | filters | --all [--yes]",
  ],
  about:
    "Requeued messages go out again through the same relay, those of one key in their order. The relay carries out requeue and\n" +
    "discard between two batches; when none runs, the command waits in the database until one does. A group is letters of one\n" +
    "relay and one type with the same kind of error. An edited letter keeps its id, key, stream, type and position, and what it was\n" +
    "before. A redrive requeues at a rate and waits while the target of the relay is out. `txbox changes` shows who did what.\n" +
    "These are the letters of relays. A consumer that reads a broker puts its own into that broker, such as orders.dead of Redis:\n" +
    "`txbox replay` of the sender sends such a message again.",
  words: true,
  flags: {
    relay: { kind: "text", value: "NAME", help: "dead letters of this relay" },
    stream: { kind: "text", value: "NAME", help: "of this stream" },
    type: { kind: "text", value: "TYPE", help: "of this message type" },
    key: { kind: "text", value: "KEY", help: "of this ordering key" },
    id: { kind: "text", value: "ID", help: "with this message id (the same as ID alone)" },
    position: { kind: "position", help: "at this position" },
    group: { kind: "text", value: "GROUP", help: "of this group, as `dead groups` names it" },
    state: {
      kind: "text",
      choices: ["dead", "requeued", "discarded"],
      help: "list: what became of them (default dead)",
    },
    original: { kind: "switch", help: "show: as it was enqueued, whatever it was edited to" },
    payload: { kind: "text", value: "FILE", help: "edit: the new payload, as it is in this file (- for stdin)" },
    headers: { kind: "text", value: "FILE", help: "edit: the new headers, a JSON object in this file (- for stdin)" },
    requeue: { kind: "switch", help: "edit: and requeue it" },
    rate: { kind: "integer", min: 1, help: "redrive: letters per second" },
    "start-at": { kind: "text", value: "TIME", help: "redrive: not before 2026-01-31T08:00:00Z, or 2h from now" },
    rounds: { kind: "integer", min: 1, help: "redrive: how often a letter that dies again is requeued (default 1)" },
    all: { kind: "switch", help: "requeue, redrive, discard: every one (of --relay)" },
    limit: { kind: "integer", min: 1, help: "at most this many, oldest first (list: 100)" },
    yes: { kind: "switch", help: "do not ask before discarding several" },
    ...AUTHOR_FLAGS,
  },
  examples: [
    ["dead groups", "one cause or ten?"],
    ["dead requeue --relay to-rabbit --group 0f3a9c41d2e7 --limit 1", "one of a group, to see whether it works now"],
    ["dead redrive --relay to-rabbit --group 0f3a9c41d2e7 --rate 50", "and then the others, 50 a second"],
    ["dead edit 0198c7c2-… --payload mended.json --requeue --actor anna", "the same message with another payload"],
    ["dead list --relay to-rabbit", "what died, oldest first"],
    ["dead show 0198c7c2-…", "payload, headers and every error of one"],
    ["dead requeue --stream orders --key 4711", "a key's dead letters, in order"],
    ["dead requeue --type order_created --limit 10", "ten of them, to see whether it works now"],
    ["dead discard --all --relay audit --yes", "give them up"],
  ],
  async run(context, { flags, positionals }) {
    const { name, rest } = subcommand("dead", positionals, SUBCOMMANDS);
    const { relay, stream, type, key, id, position, group, state, limit, all, yes } = flags;
    for (const [flag, goesWith] of Object.entries(GOES_WITH)) {
      if (goesWith.includes(name)) continue;
      refuseFlags("dead", flags, [flag], inWords(goesWith.map((one) => `dead ${one}`)));
    }
    if (rest.length > 0) refuseFlags("dead", flags, ["id"], "no other ID");
    const filter: DeadFilter & { limit?: number } = {
      ...(relay === undefined ? {} : { relay }),
      ...(stream === undefined ? {} : { stream }),
      ...(type === undefined ? {} : { type }),
      ...(key === undefined ? {} : { key }),
      ...(id === undefined ? {} : { id }),
      ...(position === undefined ? {} : { position }),
      ...(group === undefined ? {} : { group }),
      ...(limit === undefined ? {} : { limit }),
    };
    if (name === "groups") {
      noMore("dead", rest);
      return groups(context, filter);
    }
    if (name === "list") {
      noMore("dead", rest);
      return list(context, {
        ...filter,
        ...(state === undefined ? {} : { state: state as DeadLetter["state"] }),
      });
    }
    const queries = rest.length === 0 ? [filter] : rest.map((one) => ({ ...filter, id: one }));
    if (name === "show") return show(context, queries, flags.original === true);
    if (name === "edit") return editLetter(context, queries, flags);
    const chosen = rest.length > 0 || [stream, type, key, id, position, group].some((value) => value !== undefined);
    if (chosen === (all === true)) {
      const what = chosen
        ? "Give filters or --all, not both"
        : `Which ones? Name an ID, filter by --key, --stream, --type, --group or --position, or say --all`;
      throw new UsageError(what, { command: "dead" });
    }
    if (name === "redrive") {
      if (rest.length > 1) throw new UsageError("dead redrive takes one ID, or filters", { command: "dead" });
      return redriveLetters(context, all === true ? { ...queries[0]!, all } : queries[0]!, flags);
    }
    const single = queries.every((query) => query.id !== undefined || query.position !== undefined);
    const choices = queries.map((query): DeadChoice => (all === true ? { ...query, all } : query));
    return tell(context, name, choices, single || name === "requeue" || yes === true, flags);
  },
});

const SUBCOMMANDS = ["groups", "list", "show", "requeue", "redrive", "edit", "discard"] as const;

/** With which subcommands a flag means something; all others mean something with all. */
const GOES_WITH: Readonly<Record<string, readonly (typeof SUBCOMMANDS)[number][]>> = {
  key: ["list", "show", "requeue", "redrive", "edit", "discard"],
  id: ["list", "show", "requeue", "redrive", "edit", "discard"],
  position: ["list", "show", "requeue", "redrive", "edit", "discard"],
  group: ["list", "show", "requeue", "redrive", "discard"],
  state: ["list"],
  original: ["show"],
  payload: ["edit"],
  headers: ["edit"],
  requeue: ["edit"],
  rate: ["redrive"],
  "start-at": ["redrive"],
  rounds: ["redrive"],
  all: ["requeue", "redrive", "discard"],
  limit: ["groups", "list", "requeue", "redrive", "discard"],
  yes: ["discard"],
  actor: ["requeue", "redrive", "edit", "discard"],
  reason: ["requeue", "redrive", "edit", "discard"],
};

function inWords(names: readonly string[]): string {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)!}`;
}

async function groups(context: CliContext, query: DeadGroupQuery): Promise<void> {
  const { admin } = (await context.open()).store;
  const found = await admin.deadGroups(query);
  context.output.result({ groups: found }, () =>
    found.length === 0 ? "There are no dead letters.\n" : groupTable(found),
  );
}

async function list(context: CliContext, { limit = 100, ...asked }: DeadQuery): Promise<void> {
  const { output } = context;
  // A table shows none of what may be long.
  const query = { ...asked, ...(output.json ? {} : { contents: false }) };
  const { admin } = (await context.open()).store;
  const state = query.state ?? "dead";
  const first = await admin.dead({ ...query, limit: Math.min(PAGE, limit) });
  if (first.length === 0 && Object.keys(asked).length === 0) output.note(ELSEWHERE);
  if (limit <= PAGE || first.length < PAGE) {
    output.result({ dead: output.json ? first.map(messageRecord) : [] }, () =>
      first.length === 0 ? `There are no ${state === "dead" ? "dead" : `${state} dead`} letters.\n` : deadTable(first),
    );
    return;
  }
  // However many there are, only one page of them is in memory.
  const records = (letters: readonly DeadLetter[]) =>
    letters.map((letter) => jsonText(messageRecord(letter), 2).replaceAll("\n", "\n    ")).join(",\n    ");
  if (output.json) await output.piece('{\n  "dead": [');
  let separator = "\n    ";
  for await (const letters of pages(admin, query, limit, first)) {
    await output.piece(output.json ? separator + records(letters) : `${deadTable(letters)}\n`);
    separator = ",\n    ";
  }
  if (output.json) await output.piece("\n  ]\n}\n");
}

async function* pages(
  admin: Admin,
  query: DeadQuery,
  limit: number,
  first: DeadLetter[],
): AsyncGenerator<DeadLetter[]> {
  let page = first;
  for (let left = limit; page.length > 0;) {
    yield page;
    left -= page.length;
    const after: DeadPlace | undefined = page.at(-1);
    if (left === 0 || after === undefined) return;
    page = await admin.dead({ ...query, after, limit: Math.min(PAGE, left) });
  }
}

async function show(context: CliContext, queries: readonly DeadQuery[], original: boolean): Promise<void> {
  if (queries.some((query) => query.id === undefined && query.position === undefined)) {
    throw new UsageError("dead show needs an ID or --position", { command: "dead" });
  }
  const { store } = await context.open();
  const letters: DeadLetter[] = [];
  for (const query of queries) {
    const found = await lettersInAnyState(store.admin, query);
    if (found.length === 0) throw noSuchLetter(query);
    letters.push(...(original ? await Promise.all(found.map((letter) => asEnqueued(store.admin, letter))) : found));
  }
  context.output.result({ dead: letters.map(messageRecord) }, () => letters.map(deadDetails).join("\n"));
}

async function asEnqueued(admin: Admin, letter: DeadLetter): Promise<DeadLetter> {
  const original = await admin.original({ relay: letter.relay, id: letter.id, position: letter.position });
  return original === null ? letter : { ...letter, body: original.body, headers: original.headers };
}

async function lettersInAnyState(admin: Admin, query: DeadQuery): Promise<DeadLetter[]> {
  const found = await Promise.all(
    (["dead", "requeued", "discarded"] as const).map((state) => admin.dead({ ...query, state })),
  );
  return found.flat();
}

/** Writes the command into the rows; the owner of the lane carries it out. */
async function tell(
  context: CliContext,
  what: "requeue" | "discard",
  choices: readonly DeadChoice[],
  sure: boolean,
  author: AuthorValues,
): Promise<number> {
  const { output } = context;
  const admin = adminBy((await context.open()).store.admin, author);
  if (!sure) {
    const found = await countUpTo(admin, choices[0]!);
    const which = found > COUNTED ? `more than ${plural(COUNTED, "dead letter")}` : plural(found, "dead letter");
    if (found > 0 && !(await confirm(`Discard ${which}?`, false, "dead"))) {
      output.note("Nothing was changed.");
      return EXIT.failed;
    }
  }
  const done = what === "requeue" ? "requeued" : "discarded";
  let count = 0;
  for (const choice of choices) {
    const told = await admin[what](choice, (soFar) => {
      if (soFar % 100_000 === 0) output.note(`${soFar} so far`);
    });
    if (told === 0 && (choice.id !== undefined || choice.position !== undefined)) throw noSuchLetter(choice);
    count += told;
  }
  const idle = await relaysWithoutProcess(admin, choices);
  output.result({ [done]: count, relaysWithoutProcess: idle }, () => {
    if (count === 0) return "No dead letter matches.\n";
    const wait =
      idle.length === 0
        ? ""
        : `No process of ${printable(idle.join(", "))} runs now: it happens when one is started.\n`;
    return `${plural(count, "dead letter")} will be ${done} by the relay.\n${wait}`;
  });
  return EXIT.ok;
}

async function countUpTo(admin: Admin, choice: DeadChoice): Promise<number> {
  const filter = { ...filterOf(choice), contents: false };
  const most = Math.min(choice.limit ?? Number.POSITIVE_INFINITY, COUNTED + 1);
  let count = 0;
  for await (const letters of pages(admin, filter, most, await admin.dead({ ...filter, limit: Math.min(PAGE, most) })))
    count += letters.length;
  return count;
}

function filterOf(choice: DeadChoice): DeadFilter {
  const { all: _all, limit: _limit, ...filter } = choice;
  return filter;
}

/** Relays with a command that waits, because no process runs them. */
async function relaysWithoutProcess(admin: Admin, choices: readonly DeadChoice[]): Promise<string[]> {
  const idle = (await admin.relays()).filter(({ dead, lanes }) => dead > 0 && !lanes.some(isLive));
  const waiting: string[] = [];
  for (const { name: relay } of idle) {
    for (const filter of choices.map(filterOf)) {
      if (filter.relay !== undefined && filter.relay !== relay) continue;
      const [letter] = await admin.dead({ ...filter, relay, limit: 1, contents: false });
      if (letter === undefined || letter.command === null) continue;
      waiting.push(relay);
      break;
    }
  }
  return waiting;
}
