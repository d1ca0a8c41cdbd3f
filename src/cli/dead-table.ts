import type { DeadGroup, DeadLetter } from "../core/contracts.ts";
import { printable } from "../core/printable.ts";
import { formatTable } from "./format-table.ts";
import { formatAge, formatTime } from "./format-values.ts";
import { jsonText, readableBody } from "./json-text.ts";

export function deadTable(letters: readonly DeadLetter[]): string {
  return formatTable(letters, [
    { title: "relay", value: ({ relay }) => relay },
    { title: "position", align: "right", value: ({ position }) => position.toString() },
    { title: "id", value: ({ id }) => id },
    { title: "stream", value: ({ stream }) => stream },
    { title: "type", value: ({ type }) => type },
    { title: "key", value: ({ key }) => key, max: 30 },
    {
      title: "state",
      value: ({ state, command }) =>
        command === null ? state : `${state}, to be ${command}${command === "requeue" ? "d" : "ed"}`,
    },
    { title: "attempts", align: "right", value: ({ attempts }) => attempts },
    { title: "died", value: ({ diedAt }) => formatTime(diedAt) },
    { title: "last error", value: ({ lastError }) => lastError, max: 60 },
  ]);
}

export function groupTable(groups: readonly DeadGroup[]): string {
  return formatTable(groups, [
    { title: "group", value: ({ group }) => group },
    { title: "relay", value: ({ relay }) => relay, max: 20 },
    { title: "stream", value: ({ stream }) => stream, max: 20 },
    { title: "type", value: ({ type }) => type, max: 30 },
    {
      title: "letters",
      align: "right",
      value: ({ count, estimated }) => (estimated ? `${count.toLocaleString("en-US")} or more` : count),
    },
    { title: "keys", align: "right", value: ({ keys }) => keys },
    { title: "first", align: "right", value: ({ firstDiedAt }) => formatAge(firstDiedAt) },
    { title: "last", align: "right", value: ({ lastDiedAt }) => formatAge(lastDiedAt) },
    { title: "error of the newest", value: ({ error }) => error, max: 80 },
  ]);
}

/** Everything about one dead letter. */
export function deadDetails(letter: DeadLetter): string {
  const {
    id,
    relay,
    position,
    stream,
    type,
    key,
    aggregateType,
    aggregateId,
    state,
    command,
    attempts,
    createdAt,
    diedAt,
  } = letter;
  const body = readableBody(letter);
  const facts: [string, string][] = [
    ["id", id],
    ["relay", relay],
    ["state", command === null ? state : `${state} (${command} waits for the relay)`],
    ["stream", stream],
    ["type", type],
    ["key", key ?? "–"],
    ["aggregate", aggregateId === null ? "–" : `${aggregateType ?? ""}:${aggregateId}`],
    ["position", position.toString()],
    ["enqueued", createdAt.toISOString()],
    ["died", diedAt.toISOString()],
    ["attempts", String(attempts)],
    ["group", letter.group],
    ["edited", letter.edited ? "yes (--original shows what it was)" : "no"],
  ];
  // JSON is printable already, and its blanks are its own.
  const documents: [string, string][] = [
    ["headers", jsonText(letter.headers)],
    "payload" in body ? ["payload", jsonText(body.payload)] : ["body", `${body.bodyBase64} (base64)`],
  ];
  const errors = letter.errors.length === 0 ? [{ at: diedAt.toISOString(), error: letter.lastError }] : letter.errors;
  return [
    ...facts.map(([name, value]) => `${name.padEnd(10)} ${printable(value)}`),
    ...documents.map(([name, json]) => `${name.padEnd(10)} ${json}`),
    "errors",
    ...errors.map(({ at, error }) => `  ${printable(at)}  ${printable(error)}`),
    "",
  ].join("\n");
}
