import { mustRun } from "../../harness/run-command.ts";
import { requireCommand } from "../../harness/require-command.ts";

/** The environment of a process whose clock is wrong by so much, such as "+2h". */
export async function fakedTime(offset: string): Promise<Record<string, string>> {
  const faketime = await requireCommand("faketime", { apt: "faketime" });
  const { stdout } = await mustRun(faketime, ["-f", offset, "env"]);
  const lines = stdout.split("\n").map((line) => /^(LD_PRELOAD|FAKETIME)=(.*)$/.exec(line));
  return Object.fromEntries(lines.flatMap((match) => (match === null ? [] : [[match[1] ?? "", match[2] ?? ""]])));
}
