import { execFileSync, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { until } from "./deadline.ts";

/** True while the process exists and is not a zombie. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
  return procStat(pid)?.state !== "Z";
}

/** Sends a signal; a process that is already gone is no error. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/**
 * Stops a process, and comes back when none of its threads runs any more: one of them must be scheduled to take the
 * signal before the rest stop, and until then a busy machine lets them answer.
 */
export function freeze(pid: number): void {
  signal(pid, "SIGSTOP");
  const endsAt = performance.now() + 5000;
  while (!isFrozen(pid)) {
    if (performance.now() > endsAt) throw new Error(`process ${pid} does not stop`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
  }
}

export async function waitUntilGone(pids: readonly number[], timeoutMs: number): Promise<void> {
  const check = (): boolean => pids.every((pid) => !isAlive(pid));
  await until(check, { what: `end of processes ${pids.join(", ")}`, timeoutMs });
}

export function childPids(parent: number): number[] {
  if (!existsSync("/proc/self/stat")) return childPidsFromPs(parent);
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => procStat(pid)?.parent === parent);
}

/**
 * Ends a process, and removes its folder, when this process is gone for whatever reason, SIGKILL included.
 * Returns a function that calls the guard off.
 */
export function guard(pid: number, options: { signal: NodeJS.Signals; folder?: string }): () => void {
  // The pipe on stdin closes when this process dies; the guard has its own session, so Ctrl-C does not reach it.
  const script = `while read -r _; do :; done
    kill -s "$2" "$1" 2>/dev/null
    n=0; while [ $n -lt 60 ] && kill -0 "$1" 2>/dev/null; do sleep 0.1; n=$((n+1)); done
    kill -s KILL "$1" 2>/dev/null
    [ -z "$3" ] || rm -rf "$3"`;
  const args = ["-c", script, "sh", String(pid), options.signal.slice("SIG".length), options.folder ?? ""];
  const child = spawn("/bin/sh", args, { stdio: ["pipe", "ignore", "ignore"], detached: true, cwd: "/" });
  child.on("error", () => undefined);
  child.stdin.on("error", () => undefined);
  child.unref();
  (child.stdin as unknown as { unref?: () => void }).unref?.();
  return () => void child.kill("SIGKILL");
}

/** A process that has ended counts, and every process of a system without /proc. */
function isFrozen(pid: number): boolean {
  const tasks = `/proc/${pid}/task`;
  if (!existsSync(tasks)) return true;
  return readdirSync(tasks).every((thread) => "TtZX".includes(procStat(`${pid}/task/${thread}`)?.state ?? "X"));
}

function procStat(task: number | string): { state: string; parent: number } | undefined {
  try {
    // The command name may hold spaces and brackets: the fields begin after the last ")".
    const stat = readFileSync(`/proc/${task}/stat`, "utf8");
    const [state = "", parent = ""] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return { state, parent: Number(parent) };
  } catch {
    return undefined;
  }
}

function childPidsFromPs(parent: number): number[] {
  return execFileSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" })
    .split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number))
    .filter(([, ppid]) => ppid === parent)
    .flatMap(([pid]) => (pid === undefined ? [] : [pid]));
}
