import { systemClock } from "../core/clock.ts";
import type { BackoffOptions } from "../core/backoff.ts";
import type { Clock } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../core/options.ts";
import { valueKind } from "../core/value-kind.ts";

/** One option: how a given value is checked, and what it is when it is left out. */
export interface OptionSpec<T> {
  /** Throws `invalid_option`, naming the option and the fix; `value` is undefined when the option was left out. */
  read(of: string, name: string, value: unknown): T;
}

/** A spec for every option of a function; a missing one and one too many do not compile. */
export type OptionSpecs<Options extends object> = {
  readonly [Name in keyof Options]-?: OptionSpec<Options[Name] | undefined>;
};

/** The options as they are after checks and defaults. */
export type SettingsOf<Specs> = {
  readonly [Name in keyof Specs]: Specs[Name] extends OptionSpec<infer T> ? T : never;
};

/** Names that an option had before, each with what to use in its place. */
export type RenamedOptions = Readonly<Record<string, string>>;

/** Checks the options of a function and fills in what was left out. Unknown and renamed options are errors. */
export function readOptions<Specs extends Readonly<Record<string, OptionSpec<unknown>>>>(
  of: string,
  options: object | undefined,
  specs: Specs,
  renamed: RenamedOptions = {},
): SettingsOf<Specs> {
  const given = (options ?? {}) as Record<string, unknown>;
  for (const [before, now] of Object.entries(renamed)) {
    if (typeof given !== "object" || !Object.hasOwn(given, before)) continue;
    throw invalidOption(of, before, `${before} has another name now`, `Use ${now} instead`);
  }
  rejectUnknownOptions(of, given, Object.keys(specs));
  const settings: Record<string, unknown> = {};
  for (const [name, spec] of Object.entries(specs)) settings[name] = spec.read(of, name, given[name]);
  return settings as SettingsOf<Specs>;
}

export function invalidOption(of: string, field: string, what: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", `${of}: ${what}`, { field, fix });
}

/** What the application must pass, such as a client: `read` gives it back or throws. */
export function required<T>(read: (of: string, value: unknown) => T): OptionSpec<T> {
  return { read: (of, _, value) => read(of, value) };
}

/** An object of the application, such as a client, by the methods that are called. */
export function requireMethods<T>(
  of: string,
  name: string,
  value: unknown,
  methods: readonly (keyof T & string)[],
  fix: string,
): T {
  const missing = methods.find((method) => typeof (value as T | null | undefined)?.[method] !== "function");
  if (missing === undefined) return value as T;
  throw invalidOption(of, name, `${name} has no method ${missing}`, fix);
}

/** The same as an option. */
export function methods<T>(called: readonly (keyof T & string)[], fix: string): OptionSpec<T> {
  return { read: (of, name, value) => requireMethods(of, name, value, called, fix) };
}

/** Undefined when it is left out. */
export function optional<T>(spec: OptionSpec<T>): OptionSpec<T | undefined> {
  return { read: (of, name, value) => (value === undefined ? undefined : spec.read(of, name, value)) };
}

export function integer(min: number, max: number, standard: number): OptionSpec<number> {
  return {
    read(of, name, value = standard) {
      requireInteger(of, name, value, min, max);
      return value as number;
    },
  };
}

/** The longest time that a timer can wait. */
export const MAX_MS: number = 2 ** 31 - 1;

export function milliseconds(standard: number, min = 1): OptionSpec<number> {
  return integer(min, MAX_MS, standard);
}

export function flag(standard: boolean): OptionSpec<boolean> {
  return {
    read(of, name, value = standard) {
      if (typeof value === "boolean") return value;
      throw invalidOption(of, name, `${name} must be true or false, got ${valueKind(value)}`, `Set ${name}: true`);
    },
  };
}

export function oneOf<const T extends string>(allowed: readonly T[], standard: T): OptionSpec<T> {
  return {
    read(of, name, value = standard) {
      if (allowed.includes(value as T)) return value as T;
      const shown = typeof value === "string" ? JSON.stringify(value) : valueKind(value);
      const fix = `Use ${allowed.map((one) => JSON.stringify(one)).join(" or ")}`;
      throw invalidOption(of, name, `${name} cannot be ${shown}`, fix);
    },
  };
}

/** Text with something in it; `fix` shows what to pass. */
export function text(fix: string): OptionSpec<string> {
  return {
    read(of, name, value) {
      if (typeof value === "string" && value !== "") return value;
      throw invalidOption(of, name, `${name} must be a name, got ${valueKind(value)}`, fix);
    },
  };
}

/** One name or a list of names, as a list without repeats. */
export function names(fix: string): OptionSpec<readonly string[]> {
  return {
    read(of, name, value) {
      const list: unknown[] = typeof value === "string" ? [value] : Array.isArray(value) ? value : [];
      if (list.length > 0 && list.every((one) => typeof one === "string" && one !== "")) {
        return [...new Set(list as string[])];
      }
      throw invalidOption(of, name, `${name} must be a name or a list of names, got ${valueKind(value)}`, fix);
    },
  };
}

/** A function; without a standard it has to be given. */
export function callback<F extends (...args: never[]) => unknown>(fix: string, standard?: F): OptionSpec<F> {
  return {
    read(of, name, value: unknown = standard) {
      requireFunction(of, name, value, fix);
      return value as F;
    },
  };
}

export function backoff(standard: BackoffOptions): OptionSpec<BackoffOptions> {
  return {
    read(of, name, value = standard) {
      rejectUnknownOptions(`${of} ${name}`, value as object, ["baseMs", "maxMs"]);
      const { baseMs, maxMs } = value as BackoffOptions;
      requireInteger(of, `${name}.baseMs`, baseMs, 0);
      requireInteger(of, `${name}.maxMs`, maxMs, baseMs);
      return value as BackoffOptions;
    },
  };
}

export const clock: OptionSpec<Clock> = {
  read(of, name, value = systemClock) {
    const { monotonic, sleep } = (value ?? {}) as Partial<Clock>;
    if (typeof monotonic === "function" && typeof sleep === "function") return value as Clock;
    throw invalidOption(of, name, `${name} must have monotonic() and sleep()`, "Leave it out: it is for tests");
  },
};
