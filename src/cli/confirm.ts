import { createInterface } from "node:readline/promises";
import { printable } from "../core/printable.ts";
import { UsageError } from "./usage-error.ts";

/** Asks before what cannot be undone. Without a terminal to answer at, `--yes` is required. */
export async function confirm(question: string, yes: boolean | undefined, command: string): Promise<boolean> {
  if (yes === true) return true;
  if (!process.stdin.isTTY) throw new UsageError(`${question} Add --yes to do it without being asked`, { command });
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${printable(question)} [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}
