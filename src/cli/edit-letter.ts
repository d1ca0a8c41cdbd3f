import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { buffer } from "node:stream/consumers";
import type { Admin, DeadFilter, DeadLetter, DeadQuery, LetterEdit } from "../core/contracts.ts";
import { requireFittingEdit } from "../admin/edit-contract.ts";
import { describeError, TxboxError } from "../core/errors.ts";
import { contractsOf } from "../core/event-map.ts";
import type { Headers } from "../core/message.ts";
import { adminBy, type AuthorValues } from "./author-flags.ts";
import type { CliContext } from "./cli-context.ts";
import { UsageError } from "./usage-error.ts";

interface EditFlags extends AuthorValues {
  readonly payload?: string;
  readonly headers?: string;
  readonly requeue?: boolean;
}

/** `txbox dead edit`: other contents for one letter, from files. */
export async function editLetter(context: CliContext, queries: readonly DeadQuery[], flags: EditFlags): Promise<void> {
  const [query, ...more] = queries;
  if (query === undefined || more.length > 0 || (query.id === undefined && query.position === undefined))
    throw wrong("dead edit takes one ID, or --position");
  const { payload, headers } = flags;
  if (payload === undefined && headers === undefined)
    throw wrong("Edit what? Give --payload FILE, --headers FILE or both");
  if (payload === "-" && headers === "-") throw wrong("Only one of --payload and --headers can come from stdin");
  const change: LetterEdit = {
    ...(payload === undefined ? {} : { body: await contentsOf(context, "--payload", payload) }),
    ...(headers === undefined ? {} : { headers: headersOf(await contentsOf(context, "--headers", headers)) }),
  };
  const admin = adminBy((await context.open()).store.admin, flags);
  const letter = await theLetter(admin, query);
  const { relay, id, position } = letter;
  const { config } = await context.loadConfig();
  requireFittingEdit(contractsOf("events", config.events), letter, change);
  await admin.edit({ relay, id, position }, change);
  const requeued = flags.requeue === true ? await admin.requeue({ relay, id, position }) : 0;
  context.output.result({ edited: id, relay, requeued }, () =>
    requeued > 0
      ? `Edited. The letter will be requeued by the relay.\n`
      : `Edited. It goes out so when it is requeued: txbox dead requeue ${id} --relay ${relay}\n`,
  );
}

/** A letter of one relay: each has its own edits. */
async function theLetter(admin: Admin, query: DeadQuery): Promise<DeadLetter> {
  const letters = await admin.dead({ ...query, limit: 10 });
  const [letter, second] = letters;
  if (letter === undefined) throw noSuchLetter(query);
  if (second === undefined) return letter;
  const relays = [...new Set(letters.map(({ relay }) => relay))];
  throw wrong(`Several letters are named so, of ${relays.join(", ")}. Give --relay and --position`);
}

async function contentsOf(context: CliContext, flag: string, file: string): Promise<Uint8Array> {
  try {
    return file === "-" ? await buffer(process.stdin) : await readFile(resolve(context.cwd, file));
  } catch (error) {
    throw new UsageError(`${flag}: ${describeError(error)}`, { command: "dead" });
  }
}

function headersOf(text: Uint8Array): Headers {
  try {
    return JSON.parse(Buffer.from(text).toString()) as Headers;
  } catch (error) {
    throw wrong(`--headers: the file is not JSON (${describeError(error)})`);
  }
}

export function noSuchLetter({ id, position, relay }: DeadFilter): TxboxError {
  const which = id === undefined ? `at position ${String(position)}` : `with id ${id}`;
  const where = relay === undefined ? "" : ` of relay "${relay}"`;
  return new TxboxError("not_found", `There is no dead letter ${which}${where}`, {
    fix: "List them with `txbox dead list`",
  });
}

function wrong(message: string): UsageError {
  return new UsageError(message, { command: "dead" });
}
