import { parseArgs } from "node:util";
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

/** Values by flag name, checked; an unknown flag is an error that names the nearest known one. */
export function parseFlags<F extends Flags>(argv: readonly string[], known: F, command?: string): ParsedFlags<F> {
  const fail = (message: string): never => {
    throw new UsageError(message, { command });
  };
  const options = Object.fromEntries(
    Object.entries(known).map(([name, { kind }]) => [
      name,
      { type: kind === "switch" || kind === "seconds" ? ("boolean" as const) : ("string" as const) },
    ]),
  );
  const short = { help: { type: "boolean" as const, short: "h" } };
  const { tokens } = parseArgs({
    args: [...argv],
    options: { ...options, ...("help" in options ? short : {}) },
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const flags: Record<string, unknown> = {};
  const positionals: string[] = [];
  const taken = new Set<number>();
  for (const token of tokens) {
    if (token.kind === "positional" && !taken.has(token.index)) positionals.push(token.value);
    if (token.kind !== "option") continue;
    const { name, rawName } = token;
    const flag = Object.hasOwn(known, name) ? known[name] : undefined;
    if (flag === undefined) fail(unknownFlag(rawName, Object.keys(known)));
    else if (flag.kind === "switch") {
      if (token.value !== undefined) fail(`${rawName} takes no value`);
      flags[name] = true;
    } else if (flag.kind === "seconds") {
      const next = tokens.find((other) => other.kind === "positional" && other.index === token.index + 1);
      const follows = next?.kind === "positional" && /^\d+(\.\d+)?$/.test(next.value) ? next : undefined;
      if (token.value === undefined && follows !== undefined) taken.add(follows.index);
      flags[name] = secondsOf(rawName, token.value ?? follows?.value, flag.fallback, fail);
    } else if (token.value === undefined || token.value === "") fail(`${rawName} needs a value`);
    else flags[name] = valueOf(rawName, flag, token.value, flags[name], fail);
  }
  return { flags: flags as FlagValues<F>, positionals };
}

function valueOf(
  rawName: string,
  flag: Flag,
  text: string,
  before: unknown,
  fail: (message: string) => never,
): unknown {
  switch (flag.kind) {
    case "list":
      return [...((before as string[] | undefined) ?? []), ...text.split(",").filter((part) => part !== "")];
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

function secondsOf(
  rawName: string,
  text: string | undefined,
  fallback: number,
  fail: (message: string) => never,
): number {
  if (text === undefined) return fallback;
  const seconds = Number(text);
  if (!Number.isFinite(seconds) || seconds < 0.1)
    fail(`${rawName} must be a number of seconds from 0.1, got "${text}"`);
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
