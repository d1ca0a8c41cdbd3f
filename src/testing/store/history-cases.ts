import { RandomHistory } from "./random-history.ts";
import type { StoreCase } from "./store-context.ts";

const role = "histories";

/** Random histories find what no written case covers. A failure names its seed and shows what happened. */
export const historyCases: readonly StoreCase[] = [
  ...[1, 2].map((seed): StoreCase => ({
    role,
    name: `of one process after another, seed ${seed}: nothing lost, nothing twice, keys in order`,
    run: (context) => new RandomHistory(context, { seed, steps: 120, processes: 1, openTransactions: false }).run(),
  })),
  ...[3, 4, 5].map((seed): StoreCase => ({
    role,
    name: `of processes that share, die and report late, seed ${seed}: nothing lost, nothing twice, keys in order`,
    needs: ["concurrency", "sharing"],
    run: (context) => new RandomHistory(context, { seed, steps: 160, processes: 3, openTransactions: true }).run(),
  })),
];
