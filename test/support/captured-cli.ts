import { tmpdir } from "node:os";
import { Output, type OutputStream } from "../../src/cli/output.ts";
import { hasSwitch } from "../../src/cli/parse-flags.ts";
import { runCommandLine } from "../../src/cli/run-cli.ts";

export interface Captured {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** stdout as one JSON document. */
  readonly json: unknown;
}

/** Runs `txbox` in this process: much faster than one of its own, for tests of what it says. */
export async function captureCli(
  argv: readonly string[],
  { cwd = tmpdir(), env = {} }: { cwd?: string; env?: Readonly<Record<string, string>> } = {},
): Promise<Captured> {
  let [stdout, stderr] = ["", ""];
  const stream = (take: (text: string) => void): OutputStream => ({
    writable: true,
    write: (text, done) => {
      take(text);
      done?.();
      return true;
    },
  });
  const output = new Output({
    json: hasSwitch(argv, "--json"),
    verbose: hasSwitch(argv, "--verbose"),
    stdout: stream((text) => (stdout += text)),
    stderr: stream((text) => (stderr += text)),
  });
  const code = await runCommandLine({ argv, cwd, env }, output);
  return {
    code,
    stdout,
    stderr,
    get json(): unknown {
      return JSON.parse(stdout);
    },
  };
}
