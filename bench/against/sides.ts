import type { ContestantName } from "../contestants/index.ts";
import type { Context } from "../lib/context.ts";
import type { Player } from "../lib/player.ts";
import type { Rounds } from "../lib/rounds.ts";
import type { RefCheckout } from "./ref-checkout.ts";

/** The working tree, or the commit that it is compared with. */
export interface Side {
  readonly name: "this" | "ref";
  player(contestant: ContestantName, url: string, ...more: string[]): Player;
}

export interface Sides {
  readonly context: Context;
  readonly ref: RefCheckout;
  readonly this: Side;
  readonly older: Side;
}

export function sidesOf(context: Context, ref: RefCheckout): Sides {
  return {
    context,
    ref,
    this: { name: "this", player: (name, url, ...more) => context.player(name, url, ...more) },
    older: { name: "ref", player: (name, url, ...more) => context.playerIn(ref.bench, name, url, ...more) },
  };
}

/** What a figure is measured in, and whether a smaller value is the better one. */
export interface Scale {
  unit: string;
  lessIsBetter?: boolean;
}

/** One measurement of one side: a value for each figure. */
export type Measure<Figure extends string> = () => Promise<Record<Figure, number>>;

/** Prepares both sides, one after the other; `prepare` gives what measures a side once. */
export async function compare<Figure extends string>(
  { context, this: present, older }: Sides,
  rounds: Rounds,
  scales: Record<Figure, Scale>,
  prepare: (side: Side) => Promise<Measure<Figure>>,
): Promise<void> {
  const measures = [await prepare(present), await prepare(older)] as const;
  const names = Object.keys(scales) as Figure[];
  const values = measures.map(() => Object.fromEntries(names.map((name) => [name, [] as number[]])));
  for await (const side of turns(rounds)) {
    const measured = await measures[side]();
    for (const name of names) values[side]![name]!.push(measured[name]);
  }
  for (const name of names) context.report.compared(name, values[0]![name]!, values[1]![name]!, scales[name]);
}

/**
 * Whose turn it is: 0 1, 1 0, 0 1, … so that neither side always goes first and a drift of the machine hits both alike. An
 * even number of rounds, no further pair of them when it would probably go beyond the budget, and at least two.
 */
async function* turns({ count, budgetMs }: Rounds): AsyncGenerator<0 | 1> {
  const started = performance.now();
  const pairs = Math.max(1, Math.ceil(count / 2));
  for (let pair = 0; pair < pairs; pair += 1) {
    const took = performance.now() - started;
    if (pair > 0 && took + took / pair > budgetMs) return;
    yield* [0, 1, 1, 0] as const;
  }
}
