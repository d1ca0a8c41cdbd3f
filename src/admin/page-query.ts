import { PageFailure } from "./page-failure.ts";

/** No field that can be asked for is longer. */
const MOST_TEXT = 4096;

/** The fields of a request's query string; one that the screen does not know is refused. */
export class PageQuery {
  readonly #values: URLSearchParams;

  constructor(values: URLSearchParams, known: readonly string[]) {
    for (const name of new Set(values.keys())) {
      if (!known.includes(name))
        throw new PageFailure(400, `There is no field "${name.slice(0, 50)}"`, {
          fix: `There are ${known.join(", ")}`,
        });
      if (values.getAll(name).length > 1) throw new PageFailure(400, `${name} is there twice`, { fix: "Give it once" });
    }
    this.#values = values;
  }

  text(name: string): string | undefined {
    const value = this.#values.get(name);
    if (value === null || value === "") return undefined;
    if (value.length > MOST_TEXT)
      throw new PageFailure(400, `${name} has more than ${MOST_TEXT} characters`, { fix: "Nothing stored is as long" });
    return value;
  }

  need(name: string): string {
    const value = this.text(name);
    if (value === undefined) throw new PageFailure(400, `${name} is missing`, { fix: `Give ${name}` });
    return value;
  }

  integer(name: string, { min, max, fallback }: { min: number; max: number; fallback: number }): number {
    const value = this.text(name);
    if (value === undefined) return fallback;
    const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= min && number <= max) return number;
    throw new PageFailure(400, `${name} must be a whole number from ${min} to ${max}`, { fix: `Set ${name}` });
  }

  position(name: string): bigint | undefined {
    const value = this.text(name);
    return value === undefined ? undefined : positionOf(name, value);
  }

  time(name: string): Date | undefined {
    const value = this.text(name);
    return value === undefined ? undefined : timeOf(name, value);
  }

  /** Only those that are there, so that none is undefined. */
  some<Name extends string>(...names: readonly Name[]): { [N in Name]?: string } {
    const found = names.flatMap((name) => {
      const value = this.text(name);
      return value === undefined ? [] : [[name, value]];
    });
    return Object.fromEntries(found) as { [N in Name]?: string };
  }
}

export function positionOf(name: string, value: string): bigint {
  if (/^\d{1,19}$/.test(value)) return BigInt(value);
  throw new PageFailure(400, `${name} must be a whole number such as 42`, { fix: `Set ${name}` });
}

export function timeOf(name: string, value: string): Date {
  const time = new Date(value);
  if (/^\d{4}-\d{2}-\d{2}/.test(value) && !Number.isNaN(time.getTime())) return time;
  throw new PageFailure(400, `${name} must be a time such as 2026-01-31T08:00:00Z`, { fix: `Set ${name}` });
}
