import type { Admin, DeadChoice, DeadFilter, DeadLetter, DeadPlace, DeadQuery } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { printable } from "../../core/printable.ts";
import type { CliContext } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { confirm } from "../confirm.ts";
import { deadDetails, deadTable } from "../dead-table.ts";
import { EXIT } from "../exit-code.ts";
import { plural } from "../format-values.ts";
import { jsonText, messageRecord } from "../json-text.ts";
import { isLive } from "../../core/live-processes.ts";
import { noMore, refuseFlags, subcommand } from "../subcommand.ts";
import { UsageError } from "../usage-error.ts";

/** Letters are read and printed so many at a time. */
const PAGE = 500;
/** Before several are discarded they are counted, up to here. */
const COUNTED = 10_000;

export const deadCommand: Command = defineCommand({
  name: "dead",
  summary: "list, show, requeue and discard dead letters",
  usage: [
    "dead list [filters] [--state dead|requeued|discarded]",
    "dead show ID | --position N [--relay NAME]",
    "dead requeue ID… | filters | --all",
    "dead discard ID… | filters | --all [--yes]",
  ],
  about:
    "Requeued messages go out again through the same relay, those of one key in their order. The relay carries out requeue and\n" +
    "discard between two batches; when none runs, the command waits in the database until one does.",
  words: true,
  flags: {
    relay: { kind: "text", value: "NAME", help: "dead letters of this relay" },
    stream: { kind: "text", value: "NAME", help: "of this stream" },
    type: { kind: "text", value: "TYPE", help: "of this message type" },
    key: { kind: "text", value: "KEY", help: "of this ordering key" },
    id: { kind: "text", value: "ID", help: "with this message id (the same as ID alone)" },
    position: { kind: "position", help: "at this position" },
    state: {
      kind: "text",
      choices: ["dead", "requeued", "discarded"],
      help: "list: what became of them (default dead)",
    },
    all: { kind: "switch", help: "requeue, discard: every one (of --relay)" },
    limit: { kind: "integer", min: 1, help: "at most this many, oldest first (list: 100)" },
    yes: { kind: "switch", help: "do not ask before discarding several" },
  },
  examples: [
    ["dead list --relay to-rabbit", "what died, oldest first"],
    ["dead show 0198c7c2-…", "payload, headers and every error of one"],
    ["dead requeue --stream orders --key 4711", "a key's dead letters, in order"],
    ["dead requeue --type order_created --limit 10", "ten of them, to see whether it works now"],
    ["dead discard --all --relay audit --yes", "give them up"],
  ],
  async run(context, { flags, positionals }) {
    const { name, rest } = subcommand("dead", positionals, ["list", "show", "requeue", "discard"]);
    const { relay, stream, type, key, id, position, state, limit, all, yes } = flags;
    if (name !== "list") refuseFlags("dead", flags, ["state"], "dead list");
    if (name !== "discard") refuseFlags("dead", flags, ["yes"], "dead discard");
    if (name === "list" || name === "show") refuseFlags("dead", flags, ["all"], "dead requeue and dead discard");
    if (name === "show") refuseFlags("dead", flags, ["limit"], "dead list, dead requeue and dead discard");
    if (rest.length > 0) refuseFlags("dead", flags, ["id"], "no other ID");
    const filter: DeadFilter & { limit?: number } = {
      ...(relay === undefined ? {} : { relay }),
      ...(stream === undefined ? {} : { stream }),
      ...(type === undefined ? {} : { type }),
      ...(key === undefined ? {} : { key }),
      ...(id === undefined ? {} : { id }),
      ...(position === undefined ? {} : { position }),
      ...(limit === undefined ? {} : { limit }),
    };
    if (name === "list") {
      noMore("dead", rest);
      return list(context, {
        ...filter,
        ...(state === undefined ? {} : { state: state as DeadLetter["state"] }),
      });
    }
    const queries = rest.length === 0 ? [filter] : rest.map((one) => ({ ...filter, id: one }));
    if (name === "show") return show(context, queries);
    const chosen = rest.length > 0 || [stream, type, key, id, position].some((value) => value !== undefined);
    if (chosen === (all === true)) {
      const what = chosen
        ? "Give filters or --all, not both"
        : `Which ones? Name an ID, filter by --key, --stream, --type or --position, or say --all`;
      throw new UsageError(what, { command: "dead" });
    }
    const single = queries.every((query) => query.id !== undefined || query.position !== undefined);
    const choices = queries.map((query): DeadChoice => (all === true ? { ...query, all } : query));
    return tell(context, name, choices, single || name === "requeue" || yes === true);
  },
});

async function list(context: CliContext, { limit = 100, ...query }: DeadQuery): Promise<void> {
  const { output } = context;
  const { admin } = (await context.open()).store;
  const state = query.state ?? "dead";
  const first = await admin.dead({ ...query, limit: Math.min(PAGE, limit) });
  if (limit <= PAGE || first.length < PAGE) {
    output.result({ dead: first.map(messageRecord) }, () =>
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

async function show(context: CliContext, queries: readonly DeadQuery[]): Promise<void> {
  if (queries.some((query) => query.id === undefined && query.position === undefined)) {
    throw new UsageError("dead show needs an ID or --position", { command: "dead" });
  }
  const { store } = await context.open();
  const letters: DeadLetter[] = [];
  for (const query of queries) {
    const found = await lettersInAnyState(store.admin, query);
    if (found.length === 0) throw notFound(query);
    letters.push(...found);
  }
  context.output.result({ dead: letters.map(messageRecord) }, () => letters.map(deadDetails).join("\n"));
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
): Promise<number> {
  const { output } = context;
  const { admin } = (await context.open()).store;
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
    if (told === 0 && (choice.id !== undefined || choice.position !== undefined)) throw notFound(choice);
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
  const filter = filterOf(choice);
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

/** Relays with a command that waits, because nobody runs them. */
async function relaysWithoutProcess(admin: Admin, choices: readonly DeadChoice[]): Promise<string[]> {
  const idle = (await admin.relays()).filter(({ dead, lanes }) => dead > 0 && !lanes.some(isLive));
  const waiting: string[] = [];
  for (const { name: relay } of idle) {
    for (const filter of choices.map(filterOf)) {
      if (filter.relay !== undefined && filter.relay !== relay) continue;
      const [letter] = await admin.dead({ ...filter, relay, limit: 1 });
      if (letter === undefined || letter.command === null) continue;
      waiting.push(relay);
      break;
    }
  }
  return waiting;
}

function notFound({ id, position, relay }: DeadFilter): TxboxError {
  const which = id === undefined ? `at position ${String(position)}` : `with id ${id}`;
  const where = relay === undefined ? "" : ` of relay "${relay}"`;
  return new TxboxError("not_found", `There is no dead letter ${which}${where}`, {
    fix: "List them with `txbox dead list`",
  });
}
