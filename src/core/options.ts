import { isDate } from "node:util/types";
import { TxboxError } from "./errors.ts";
import { shownValue, valueKind } from "./value-kind.ts";

/**
 * npm only warns of a Node that is too old. There, a relay would fail between publishing and settling, and publish the
 * same messages again and again.
 */
export function requireRuntime(of: string): void {
  if ("withResolvers" in Promise) return;
  throw new TxboxError("invalid_option", `${of} needs Node 22.18 or later, this is ${process.version}`, {
    fix: "Upgrade Node, or npm install node@24 and run with npx node",
  });
}

/** Throws `invalid_option` for a key that is not in `known`, naming the nearest one that is. */
export function rejectUnknownOptions(of: string, options: object, known: readonly string[]): void {
  if (typeof options !== "object" || options === null) {
    throw new TxboxError("invalid_option", `${of} takes an object of options, got ${valueKind(options)}`, {
      fix: `Its options are ${known.join(", ")}`,
    });
  }
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue;
    const near = nearest(name, known);
    throw new TxboxError("invalid_option", `${of} has no option "${name}"`, {
      field: name,
      fix: near === undefined ? `It takes ${known.join(", ")}` : `Did you mean "${near}"?`,
    });
  }
}

export function requireInteger(
  of: string,
  name: string,
  value: unknown,
  min: number,
  max: number = Number.MAX_SAFE_INTEGER,
): void {
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return;
  throw new TxboxError(
    "invalid_option",
    `${of}: ${name} must be a whole number from ${min} to ${max}, got ${valueKind(value)}`,
    {
      field: name,
      fix: `Set ${name} to a number in that range`,
    },
  );
}

export function requireName(of: string, name: string, value: unknown): void {
  if (typeof value === "string" && /^[\w.:-]{1,100}$/.test(value)) return;
  throw new TxboxError(
    "invalid_option",
    `${of}: ${name} must be 1 to 100 letters, digits or _ . : -, got ${shownValue(value)}`,
    {
      field: name,
      fix: `Set ${name}, for example to "payments"`,
    },
  );
}

export function requireFunction(of: string, name: string, value: unknown, fix: string): void {
  if (typeof value === "function") return;
  throw new TxboxError("invalid_option", `${of}: ${name} must be a function, got ${valueKind(value)}`, {
    field: name,
    fix,
  });
}

export function requireText(of: string, name: string, value: unknown): void {
  if (typeof value === "string" && value !== "") return;
  throw wrong(of, name, "must be a text that is not empty", value, `Give ${name} a value, or leave it out`);
}

/** A list with at least one text in it. */
export function requireTexts(of: string, name: string, value: unknown): void {
  const isList = Array.isArray(value) && value.length > 0;
  if (isList && value.every((one: unknown) => typeof one === "string" && one !== "")) return;
  throw wrong(of, name, "must be a list of texts", value, `Write ${name}: ["…"], or leave it out`);
}

export function requireSwitch(of: string, name: string, value: unknown): void {
  if (typeof value === "boolean") return;
  throw wrong(of, name, "must be true or false", value, `Write ${name}: true, or leave it out`);
}

export function requireTime(of: string, name: string, value: unknown): void {
  if (isDate(value) && !Number.isNaN(value.getTime())) return;
  throw wrong(of, name, "must be a Date", value, `Pass ${name}: new Date(…), or leave it out`);
}

export function requireSignal(of: string, name: string, value: unknown): void {
  if (value instanceof AbortSignal) return;
  throw wrong(of, name, "must be an AbortSignal", value, `Pass ${name}: controller.signal, or leave it out`);
}

function wrong(of: string, field: string, what: string, value: unknown, fix: string): TxboxError {
  return new TxboxError("invalid_option", `${of}: ${field} ${what}, got ${shownValue(value)}`, { field, fix });
}

/** The name in `known` with the fewest edits, if it is near enough to be a slip. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  // The unit is what is most often forgotten: `late` means `lateMs`, though another name may have fewer edits.
  if (known.includes(`${name}Ms`)) return `${name}Ms`;
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(previous[j]! + 1, row[j - 1]! + 1, change));
    }
    previous = row;
  }
  return previous[b.length]!;
}
