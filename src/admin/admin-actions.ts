import type { DeadChoice, DeadFilter, LetterEdit, RewindTarget, Store } from "../core/contracts.ts";
import type { Contracts } from "../core/event-map.ts";
import type { Headers } from "../core/message.ts";
import { shellWord } from "../core/pasted.ts";
import { plural } from "../core/plain-words.ts";
import { isLive } from "../core/live-processes.ts";
import { printable } from "../core/printable.ts";
import { type ActionAnswer, type ActionPreview, type ActionRequest, type LetterChoice } from "./page-api.ts";
import { requireFittingEdit } from "./edit-contract.ts";
import { PageFailure } from "./page-failure.ts";
import { positionOf, timeOf } from "./page-query.ts";
import type { NewJob, RedriveJobs } from "./redrive-jobs.ts";

/** Letters are counted up to here before a question is asked. */
const COUNTED = 10_000;
const SEE_WHO = "Another person has dealt with it. Look at Changes to see who";

/** What would happen, in words, with the number in it and the command that does the same. */
export async function previewAction(store: Store, request: ActionRequest, several: boolean): Promise<ActionPreview> {
  const { action } = request;
  switch (action) {
    case "requeue":
    case "discard":
      return previewLetters(store, action, request, several);
    case "edit":
      return {
        question: "Keep these contents for the letter?",
        count: 1,
        more: false,
        command: commandOf(request, several),
        notes: ["It keeps its id, key, stream and place. The original is kept. Requeue it afterwards."],
      };
    default:
      return previewRelay(store, action, request, several);
  }
}

async function previewLetters(
  store: Store,
  action: "requeue" | "discard",
  request: ActionRequest,
  several: boolean,
): Promise<ActionPreview> {
  const filter = filterOf(choiceOf(request));
  const letters = await store.admin.dead({ ...filter, limit: COUNTED, contents: false });
  const count = letters.length;
  const more = count === COUNTED;
  const keys = new Set(letters.map(({ stream, key, id }) => JSON.stringify([stream, key ?? id]))).size;
  if (count === 0) {
    const question = `No such dead letter is left to ${action}.`;
    return { question, count, more, command: commandOf(request, several), notes: [] };
  }
  const which = `${more ? "more than " : ""}${plural(count, "dead letter")}`;
  const question = action === "requeue" ? `Requeue ${which}?` : `Give up ${which} for good?`;
  const notes =
    action === "requeue"
      ? [
          count === 1
            ? "It goes out again through the same relay, before what waits behind it."
            : `They go out again through the same relay, ${plural(keys, "key")}, each in its order.`,
        ]
      : [
          count === 1
            ? "Its consumer never gets it. What waits behind it goes on."
            : "Their consumers never get them. What waits behind them goes on.",
        ];
  notes.push(...(await idleNotes(store, new Set(letters.map(({ relay }) => relay)))));
  return { question, count, more, command: commandOf(request, several), notes };
}

async function idleNotes(store: Store, relays: ReadonlySet<string>): Promise<string[]> {
  const idle = (await store.admin.relays()).filter(({ name, lanes }) => relays.has(name) && !lanes.some(isLive));
  return idle.map(({ name }) => `No process of relay ${name} runs now: it happens when one is started.`);
}

async function previewRelay(
  store: Store,
  action: "pause" | "resume" | "rewind" | "drop",
  request: ActionRequest,
  several: boolean,
): Promise<ActionPreview> {
  const name = relayOf(request);
  const relay = (await store.admin.relays()).find((one) => one.name === name);
  if (relay === undefined) throw new PageFailure(404, `There is no relay "${printable(name).slice(0, 100)}"`);
  const { pending, dead } = relay;
  const command = commandOf(request, several);
  const waiting = pending === 0 ? null : `${relay.pendingEstimated ? "about " : ""}${plural(pending, "message")}`;
  const asked = (question: string, count: number, ...notes: string[]): ActionPreview => ({
    question,
    count,
    more: false,
    command,
    notes,
  });
  if (action === "pause") {
    const question = `Pause relay ${name}? ${waiting === null ? "Nothing waits now" : `${waiting} would wait`}.`;
    const note = "Its processes finish what they hold and wait. Messages go on being written, and wait.";
    return asked(question, pending, note);
  }
  if (action === "resume")
    return asked(`Let relay ${name} go on${waiting === null ? "? Nothing waits." : ` with ${waiting}?`}`, pending);
  if (action === "drop") {
    const lost = [waiting, dead === 0 ? null : plural(dead, "dead letter")].filter((part) => part !== null);
    const question =
      lost.length === 0
        ? `Drop relay ${name} with its place in the log? Nothing waits, and it has no dead letters.`
        : `Drop relay ${name} with its place in the log and ${lost.join(" and ")}?`;
    return asked(question, pending + dead, "Started again, it begins anew. This cannot be undone.");
  }
  const target = targetOf(request.to);
  if (target === "now")
    return waiting === null
      ? asked(`Let relay ${name} go on from now? Nothing waits, so it skips nothing.`, 0)
      : asked(`Let relay ${name} skip ${waiting}?`, pending, "Their consumers never get them. This cannot be undone.");
  const { messages, estimated } = await store.admin.rewindPreview(name, target);
  if (messages === 0) {
    const skipped =
      "What waits and was enqueued before then is skipped: its consumers never get it. This cannot be undone.";
    const notes = typeof target === "object" && pending > 0 ? [skipped] : [];
    return asked(`Rewind relay ${name}? No message would be sent again.`, 0, ...notes);
  }
  return asked(
    `Send ${estimated ? "about " : ""}${plural(messages, "message")} of relay ${name} again?`,
    messages,
    "They are published again; an inbox drops what it has seen while its receipts last. This cannot be undone.",
  );
}

/** Carries an action out; says in words what was done. */
export async function carryOut(
  name: string,
  store: Store,
  request: ActionRequest,
  author: NewJob["author"],
  { jobs, contracts }: { jobs: RedriveJobs; contracts: Contracts | undefined },
): Promise<ActionAnswer> {
  const { action } = request;
  switch (action) {
    case "requeue":
    case "discard":
      return tell(name, store, action, request, author, jobs);
    case "edit":
      return edit(store, request, author, contracts);
    case "pause":
    case "resume":
    case "drop":
      await store.admin.by(author)[action](relayOf(request));
      break;
    case "rewind":
      await store.admin.by(author).rewind(relayOf(request), targetOf(request.to));
      break;
  }
  const words = { pause: "is paused", resume: "goes on", drop: "is gone", rewind: "goes on from there" };
  return { done: `Relay ${relayOf(request)} ${words[action]}.`, count: null, job: null };
}

async function tell(
  name: string,
  store: Store,
  action: "requeue" | "discard",
  request: ActionRequest,
  author: NewJob["author"],
  jobs: RedriveJobs,
): Promise<ActionAnswer> {
  const { atMost, perSecond } = request;
  const choice = { ...choiceOf(request), ...(atMost === undefined ? {} : { limit: atMost }) };
  if (perSecond !== undefined && action === "requeue") {
    const what = commandOf({ ...request, action: "requeue" }, false);
    const job = jobs.start({ name, store, what, choice, perSecond, author });
    return { done: `Letters are requeued, ${perSecond} in a second.`, count: null, job };
  }
  await rejectAsDone(store, action, choice);
  const count = await store.admin.by(author)[action](choice);
  if (count === 0)
    throw new PageFailure(409, "Nothing was changed: there is no such dead letter any more", {
      fix: SEE_WHO,
    });
  const idle = await idleNotes(store, new Set(choice.relay === undefined ? [] : [choice.relay]));
  const done = `${plural(count, "dead letter")} will be ${action === "requeue" ? "requeued" : "discarded"}.`;
  return { done: [done, ...idle].join(" "), count, job: null };
}

/** Two people may have the same letter open. The second order would do nothing, without a word about it. */
async function rejectAsDone(store: Store, action: "requeue" | "discard", choice: DeadChoice): Promise<void> {
  if (choice.position === undefined) return;
  const letters = await store.admin.dead({ ...filterOf(choice), limit: 2, contents: false });
  if (letters.length === 0 || letters.some(({ command }) => command !== action)) return;
  throw new PageFailure(
    409,
    `Nothing was changed: the letter waits to be ${action}${action === "requeue" ? "d" : "ed"} already`,
    {
      fix: SEE_WHO,
    },
  );
}

async function edit(
  store: Store,
  request: ActionRequest,
  author: NewJob["author"],
  contracts: Contracts | undefined,
): Promise<ActionAnswer> {
  const { relay, position } = choiceOf(request);
  if (relay === undefined || position === undefined)
    throw new PageFailure(400, "Which letter? Give choice.relay and choice.position");
  const change: LetterEdit = {
    ...(request.payload === undefined ? {} : { body: compactJson("payload", request.payload) }),
    ...(request.headers === undefined ? {} : { headers: jsonOf("headers", request.headers) as Headers }),
  };
  if (Object.keys(change).length === 0) throw new PageFailure(400, "Nothing is different");
  const [letter] = contracts === undefined ? [] : await store.admin.dead({ relay, position, limit: 1 });
  if (letter !== undefined) requireFittingEdit(contracts, letter, change);
  await store.admin.by(author).edit({ relay, position }, change);
  return { done: "The letter has new contents. The original is kept.", count: 1, job: null };
}

function jsonOf(name: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new PageFailure(400, `${name} is no JSON: ${(error as Error).message.slice(0, 200)}`, {
      fix: `Correct ${name}`,
    });
  }
}

/** Without the blanks between values; numbers stay as they are written. */
function compactJson(name: string, text: string): string {
  jsonOf(name, text);
  return text.replaceAll(/("(?:[^"\\]|\\.)*")|\s+/g, (_, quoted: string | undefined) => quoted ?? "");
}

/** A choice without a filter has to say that it means all. */
function choiceOf({ choice = {} }: ActionRequest): DeadChoice {
  const { position, all, ...rest } = choice;
  const filters = Object.entries(rest).filter(([, value]) => value !== "");
  const isAll = filters.every(([name]) => name === "relay") && position === undefined;
  if (isAll && all !== true) throw new PageFailure(400, "Which letters? Give a filter, or all");
  return {
    ...Object.fromEntries(filters),
    ...(position === undefined ? {} : { position: positionOf("position", position) }),
    ...(isAll ? { all: true as const } : {}),
  };
}

function filterOf({ all: _all, limit: _limit, letters: _letters, ...filter }: DeadChoice): DeadFilter {
  return filter;
}

function relayOf({ relay }: ActionRequest): string {
  if (relay === undefined || relay === "") throw new PageFailure(400, "Which relay?", { fix: "Give relay" });
  return relay;
}

function targetOf(to: string | undefined): RewindTarget {
  if (to === undefined || to === "") throw new PageFailure(400, "Rewind to where?", { fix: "Give to" });
  if (to === "earliest" || to === "now") return to;
  if (/^\d{1,19}$/.test(to)) return { position: positionOf("to", to) };
  return { time: timeOf("to", to) };
}

/** What does the same on the command line; where the page has several stores, with the name of the one that is meant. */
export function commandOf(
  { action, store, relay, choice = {}, to, perSecond }: ActionRequest,
  several: boolean,
): string {
  const words = ["txbox"];
  if (action === "requeue" || action === "discard" || action === "edit") {
    words.push("dead", perSecond === undefined ? action : "redrive", ...choiceWords(choice));
    if (perSecond !== undefined) words.push("--rate", String(perSecond));
    if (action === "edit") words.push("--payload", "FILE");
  } else {
    words.push("relays", action, shellWord(relay ?? "NAME"));
    if (action === "rewind") words.push("--to", shellWord(to ?? "earliest"));
  }
  if (several) words.push("--store", shellWord(store));
  return words.join(" ");
}

function choiceWords(choice: LetterChoice): string[] {
  const { id, all, ...filters } = choice;
  const words = id === undefined ? [] : [shellWord(id)];
  for (const [name, value] of Object.entries(filters)) words.push(`--${name}`, shellWord(value));
  return all === true ? [...words, "--all"] : words;
}
