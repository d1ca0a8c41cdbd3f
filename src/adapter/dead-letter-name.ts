import { invalidOption, type OptionSpec } from "./option-spec.ts";

/** Where dead letters go, by where they come from: a name for all of them, or a function. Default: `<name>.dead`. */
export const deadLetterName: OptionSpec<(from: string) => string> = {
  read(of, name, value = (from: string) => `${from}.dead`) {
    if (typeof value === "function") return value as (from: string) => string;
    if (typeof value === "string" && value !== "") return () => value;
    throw invalidOption(of, name, `${name} must be a name or a function`, `Pass ${name}: "dead-letters"`);
  },
};
