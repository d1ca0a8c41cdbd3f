import { nearest } from "../core/options.ts";
import { UsageError } from "./usage-error.ts";

interface FlagBase {
  readonly help: string;
  /** What stands for the value in the help text. */
  readonly value?: string;
}

export type SwitchFlag = FlagBase & { readonly kind: "switch" };
export type TextFlag = FlagBase & { readonly kind: "text"; readonly choices?: readonly string[] };

export type Flag =
  | SwitchFlag
  | TextFlag
  /** May be given several times, or with commas. */
  | (FlagBase & { readonly kind: "list" })
  | (FlagBase & { readonly kind: "integer"; readonly min: number })
  | (FlagBase & { readonly kind: "position" })
  /** A switch that may carry a number of seconds: `--watch`, `--watch 5`. */
  | (FlagBase & { readonly kind: "seconds"; readonly fallback: number });

export type Flags = Readonly<Record<string, Flag>>;

type ValueOf<F extends Flag> = {
  switch: boolean;
  text: string;
  list: readonly string[];
  integer: number;
  position: bigint;
  seconds: number;
}[F["kind"]];

export type FlagValues<F extends Flags> = { readonly [Name in keyof F]?: ValueOf<F[Name]> };

export interface ParsedFlags<F extends Flags> {
  readonly flags: FlagValues<F>;
  readonly positionals: readonly string[];
}

type Fail = (message: string) => never;

/**
 * Values by flag name, checked. An unknown flag is an error that names the nearest known one; so is a flag where a value
 * should be (`--flag=--value` if that is the value), and a second value for a flag that takes one.
 */
export function parseFlags<F extends Flags>(argv: readonly string[], known: F, command?: string): ParsedFlags<F> {
  const fail: Fail = (message) => {
    throw new UsageError(message, { command });
  };
  const flags: Record<string, unknown> = {};
  const positionals: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const arg = argv[i] ?? "";
    if (arg === "--") {
      positionals.push(...argv.slice(i + 1));
      break;
    }
    if (!looksLikeFlag(arg)) {
      positionals.push(arg);
      continue;
    }
    const { rawName, name, value } = splitFlag(arg);
    const flag = Object.hasOwn(known, name) ? known[name] : undefined;
    if (flag === undefined) fail(unknownFlag(rawName, Object.keys(known)));
    else if (flag.kind === "switch") {
      if (value !== undefined) fail(`${rawName} takes no value`);
      flags[name] = true;
    } else {
      const next = argv[i + 1];
      if (Object.hasOwn(flags, name) && flag.kind !== "list") fail(`${rawName} is given twice`);
      if (flag.kind === "seconds") {
        const follows = value === undefined && next !== undefined && /^\d+(\.\d+)?$/.test(next);
        flags[name] = secondsOf(rawName, follows ? next : value, flag.fallback, fail);
        if (follows) i++;
      } else {
        const text = value ?? nextValue(rawName, next, fail);
        if (text === "") fail(`${rawName} needs a value`);
        flags[name] = valueOf(rawName, flag, text, flags[name], fail);
        if (value === undefined) i++;
      }
    }
  }
  return { flags: flags as FlagValues<F>, positionals };
}

/** Whether this switch is among the flags; what comes after `--` is none. */
export function hasSwitch(argv: readonly string[], ...names: readonly string[]): boolean {
  const end = argv.indexOf("--");
  return (end === -1 ? argv : argv.slice(0, end)).some((arg) => names.includes(arg));
}

export function looksLikeFlag(arg: string): boolean {
  return arg.startsWith("-") && arg !== "-";
}

export function splitFlag(arg: string): { rawName: string; name: string; value: string | undefined } {
  const equals = arg.indexOf("=");
  const rawName = equals === -1 ? arg : arg.slice(0, equals);
  const name = rawName === "-h" ? "help" : rawName.startsWith("--") ? rawName.slice(2) : "";
  return { rawName, name, value: equals === -1 ? undefined : arg.slice(equals + 1) };
}

function nextValue(rawName: string, next: string | undefined, fail: Fail): string {
  if (next === undefined) return fail(`${rawName} needs a value`);
  if (!looksLikeFlag(next)) return next;
  return fail(
    `${rawName} needs a value, and ${splitFlag(next).rawName} is a flag. If it is the value: ${rawName}=VALUE`,
  );
}

function valueOf(rawName: string, flag: Flag, text: string, before: unknown, fail: Fail): unknown {
  switch (flag.kind) {
    case "list": {
      const parts = text.split(",").filter((part) => part !== "");
      if (parts.length === 0) fail(`${rawName} needs a value`);
      return [...((before as string[] | undefined) ?? []), ...parts];
    }
    case "integer": {
      const number = Number(text);
      if (!/^\d+$/.test(text) || !Number.isSafeInteger(number) || number < flag.min) {
        fail(`${rawName} must be a whole number from ${flag.min}, got "${text}"`);
      }
      return number;
    }
    case "position":
      if (!/^\d{1,18}$/.test(text)) fail(`${rawName} must be a position, got "${text}"`);
      return BigInt(text);
    case "text":
      if (flag.choices !== undefined && !flag.choices.includes(text)) {
        fail(`${rawName} cannot be "${text}". ${suggestion(text, flag.choices, "Use")}`);
      }
      return text;
    default:
      return text;
  }
}

function secondsOf(rawName: string, text: string | undefined, fallback: number, fail: Fail): number {
  if (text === undefined) return fallback;
  const seconds = text === "" ? Number.NaN : Number(text);
  if (!Number.isFinite(seconds) || seconds < 0.1 || seconds > 86_400)
    fail(`${rawName} must be a number of seconds from 0.1 to 86400, got "${text}"`);
  return seconds;
}

function unknownFlag(rawName: string, known: readonly string[]): string {
  const near = nearest(rawName.replace(/^-+/, ""), known);
  const hint =
    near === undefined ? `It takes ${known.map((name) => `--${name}`).join(", ")}` : `Did you mean --${near}?`;
  return `There is no flag ${rawName}. ${hint}`;
}

/** "Did you mean x?" or the list of what there is. */
export function suggestion(name: string, known: readonly string[], otherwise = "There are"): string {
  const near = nearest(name, known);
  return near === undefined ? `${otherwise} ${known.join(", ")}` : `Did you mean "${near}"?`;
}
