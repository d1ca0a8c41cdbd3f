import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { OptionError } from "../lib/option-error.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Parts of the present benchmark that measure the older sources: the same questions for both sides. */
const MEASURING = ["bench", "test/harness"];
const LINKED = ["node_modules", "bench/node_modules"];

export interface RefCheckout extends Disposable {
  /** As it was named. */
  readonly ref: string;
  readonly commit: string;
  /** The folder of the benchmark that runs the sources of that commit. */
  readonly bench: string;
  /** Whether the commit has this file. */
  has(path: string): boolean;
}

/** The full hash of a commit; an error that names it when there is none, or when it has nothing to measure. */
export function resolveRef(ref: string): string {
  let commit: string;
  try {
    commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", `${ref}^{commit}`);
  } catch {
    throw new OptionError(
      `--against ${ref}: there is no such commit here; give a branch, a tag or a hash that git log shows`,
    );
  }
  if (!hasFile(commit, "src/stores/postgres/index.ts"))
    throw new OptionError(`--against ${ref}: commit ${commit.slice(0, 10)} is older than txbox 0.1; give a later one`);
  return commit;
}

/**
 * Checks a commit out into a git worktree in the temporary folder, with the packages and the benchmark of the present
 * tree. Both sides run from their sources. The worktree goes when it is disposed of, and at the latest with this process.
 */
export function checkOutRef(ref: string): RefCheckout {
  const commit = resolveRef(ref);
  const folder = mkdtempSync(join(tmpdir(), "txbox-against-"));
  // A signal would end the process without its last words.
  const onSignal = (): never => process.exit(130);
  const remove = (): void => {
    process.off("exit", remove).off("SIGINT", onSignal).off("SIGTERM", onSignal);
    rmSync(folder, { recursive: true, force: true });
    git("worktree", "prune");
  };
  process.once("exit", remove).once("SIGINT", onSignal).once("SIGTERM", onSignal);
  try {
    git("worktree", "add", "--quiet", "--force", "--detach", folder, commit);
    for (const part of MEASURING) {
      rmSync(join(folder, part), { recursive: true, force: true });
      cpSync(join(ROOT, part), join(folder, part), {
        recursive: true,
        filter: (source) => !source.endsWith("node_modules"),
      });
    }
    for (const packages of LINKED) symlinkSync(join(ROOT, packages), join(folder, packages), "dir");
  } catch (error) {
    remove();
    throw error;
  }
  return {
    ref,
    commit,
    bench: join(folder, "bench"),
    has: (path) => hasFile(commit, path),
    [Symbol.dispose]: remove,
  };
}

function hasFile(commit: string, path: string): boolean {
  try {
    git("cat-file", "-e", `${commit}:${path}`);
    return true;
  } catch {
    return false;
  }
}

function git(...args: string[]): string {
  return execFileSync("git", args, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
}
