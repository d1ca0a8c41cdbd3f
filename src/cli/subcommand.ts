import { suggestion } from "./parse-flags.ts";
import { UsageError } from "./usage-error.ts";

/** The first word after the command, which must be one of `known`; and the words after it. */
export function subcommand<const Name extends string>(
  command: string,
  positionals: readonly string[],
  known: readonly Name[],
): { readonly name: Name; readonly rest: readonly string[] } {
  const [first, ...rest] = positionals;
  if (first === undefined) throw new UsageError(`txbox ${command} what? ${known.join(", ")}`, { command });
  const name = known.find((candidate) => candidate === first);
  if (name === undefined)
    throw new UsageError(`There is no "txbox ${command} ${first}". ${suggestion(first, known)}`, { command });
  return { name, rest };
}

/** A flag that means nothing with this subcommand is an error. */
export function refuseFlags(command: string, flags: object, refused: readonly string[], goesWith: string): void {
  const stray = refused.find((name) => Object.hasOwn(flags, name));
  if (stray !== undefined) throw new UsageError(`--${stray} goes with ${goesWith}`, { command });
}

export function noMore(command: string | undefined, rest: readonly string[]): void {
  if (rest.length > 0) throw new UsageError(`"${rest.join(" ")}" is too much`, { command });
}
