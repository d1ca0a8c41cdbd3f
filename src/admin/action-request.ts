import { type ActionRequest, ADMIN_ACTIONS } from "./page-api.ts";
import { PageFailure } from "./page-failure.ts";

const MOST_PER_SECOND = 10_000;
const CHOICE_FIELDS = ["relay", "stream", "type", "key", "id", "position", "group", "all"];
const FIELDS = [
  "action",
  "store",
  "relay",
  "choice",
  "atMost",
  "perSecond",
  "to",
  "payload",
  "headers",
  "actor",
  "reason",
];

/** The fields of an action, each of the right type, or 400. */
export function actionRequest(value: unknown): ActionRequest {
  const fields = objectOf(value, "The request", FIELDS);
  const action = ADMIN_ACTIONS.find((one) => one === fields["action"]);
  if (action === undefined) throw new PageFailure(400, "There is no such action", { fix: ADMIN_ACTIONS.join(", ") });
  for (const name of ["store", "relay", "to", "payload", "headers", "actor", "reason"]) {
    if (fields[name] !== undefined && typeof fields[name] !== "string") throw notA(name, "a text");
  }
  if (typeof fields["store"] !== "string") throw notA("store", "a text");
  for (const [name, most] of [
    ["atMost", Number.MAX_SAFE_INTEGER],
    ["perSecond", MOST_PER_SECOND],
  ] as const) {
    const number = fields[name];
    if (number !== undefined && !(Number.isInteger(number) && (number as number) >= 1 && (number as number) <= most))
      throw notA(name, `a whole number from 1 to ${most}`);
  }
  if (fields["choice"] !== undefined) {
    const choice = objectOf(fields["choice"], "choice", CHOICE_FIELDS);
    for (const [name, one] of Object.entries(choice))
      if (name === "all" ? one !== true : typeof one !== "string") throw notA(`choice.${name}`, "a text");
  }
  rejectLongWords(fields);
  return fields as unknown as ActionRequest;
}

/** Which redrive to stop, who does it and why. */
export function stopRequest(value: unknown): { job: string; actor?: string; reason?: string } {
  const fields = objectOf(value, "The request", ["job", "actor", "reason"]);
  for (const [name, one] of Object.entries(fields)) if (typeof one !== "string") throw notA(name, "a text");
  if (fields["job"] === undefined) throw notA("job", "a text");
  rejectLongWords(fields);
  return fields as { job: string };
}

function rejectLongWords(fields: Readonly<Record<string, unknown>>): void {
  for (const [name, most] of [
    ["actor", 100],
    ["reason", 500],
  ] as const) {
    if (((fields[name] as string | undefined)?.length ?? 0) > most) throw notA(name, `at most ${most} characters long`);
  }
}

function objectOf(value: unknown, what: string, known: readonly string[]): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw notA(what, "an object");
  const unknown = Object.keys(value).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new PageFailure(400, `${what} has no field "${unknown.slice(0, 50)}"`);
  return value as Record<string, unknown>;
}

function notA(name: string, what: string): PageFailure {
  return new PageFailure(400, `${name} must be ${what}`, { fix: `Correct ${name}` });
}
