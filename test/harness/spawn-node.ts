import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { withDeadline } from "./deadline.ts";
import { freeze, guard } from "./processes.ts";

export interface SpawnNodeOptions {
  /** Added to this process's environment; undefined removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  readonly nodeArgs?: readonly string[];
  /** Copies the child's output to ours, for debugging a test. */
  readonly echo?: boolean;
  /** How long the waits below last unless told otherwise. */
  readonly timeoutMs?: number;
}

export interface NodeExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface NodeProcess {
  readonly pid: number;
  /** Everything printed so far, line by line. */
  readonly stdout: readonly string[];
  readonly stderr: readonly string[];
  readonly exited: Promise<NodeExit>;
  readonly running: boolean;
  /** Writes a line to the child's stdin. */
  send(line: string): void;
  /** The first line of stdout that matches, among those from index `from` on; rejects when the child ends without it. */
  waitForLine(pattern: string | RegExp, options?: { from?: number; timeoutMs?: number }): Promise<string>;
  waitForExit(options?: { timeoutMs?: number }): Promise<NodeExit>;
  /** Signals (SIGKILL unless told otherwise) and waits for the end. A child that has ended is no error. */
  kill(signal?: NodeJS.Signals): Promise<NodeExit>;
  signal(signal: NodeJS.Signals): void;
  /** SIGSTOP: frozen as by a long garbage collection or a suspended machine. */
  pause(): void;
  resume(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Runs a TypeScript or JavaScript file in a Node of its own. It is killed when this process ends. */
export function spawnNode(file: string, args: readonly string[] = [], options: SpawnNodeOptions = {}): NodeProcess {
  const defaultTimeoutMs = options.timeoutMs ?? 30_000;
  const child = spawn(process.execPath, [...(options.nodeArgs ?? []), file, ...args], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`could not run ${file}`);
  const release = guard(pid, { signal: "SIGKILL" });

  const stdout: string[] = [];
  const stderr: string[] = [];
  const onLine = new Set<() => void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    stdout.push(line);
    if (options.echo === true) process.stdout.write(`[${pid}] ${line}\n`);
    for (const listener of onLine) listener();
  });
  createInterface({ input: child.stderr }).on("line", (line) => {
    stderr.push(line);
    if (options.echo === true) process.stderr.write(`[${pid}] ${line}\n`);
  });
  child.stdin.on("error", () => undefined);

  let running = true;
  // "close" and not "exit": by then all output has been read.
  const exited = new Promise<NodeExit>((resolve) => {
    child.once("close", (code, signalName) => {
      running = false;
      release();
      resolve({ code, signal: signalName });
    });
  });

  const tail = (): string => [...stdout.slice(-20), ...stderr.slice(-20)].join("\n");
  const waitForExit = (timeoutMs = defaultTimeoutMs): Promise<NodeExit> =>
    withDeadline(exited, timeoutMs, `end of ${file} (pid ${pid})`);

  const waitForLine = async (pattern: string | RegExp, from: number, timeoutMs: number): Promise<string> => {
    const matches = (line: string): boolean =>
      typeof pattern === "string" ? line.includes(pattern) : new RegExp(pattern.source, pattern.flags).test(line);
    const find = (): string | undefined => stdout.slice(from).find(matches);
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const look = (): void => {
      const line = find();
      if (line !== undefined) resolve(line);
    };
    onLine.add(look);
    look();
    void exited.then(({ code, signal: by }) => {
      reject(new Error(`${file} ended (${code ?? by}) without printing ${pattern}\n${tail()}`));
    });
    try {
      return await withDeadline(promise, timeoutMs, `line ${pattern} from ${file}`);
    } catch (error) {
      throw new Error(`${(error as Error).message}\n${tail()}`, { cause: error });
    } finally {
      onLine.delete(look);
    }
  };

  const kill = (name: NodeJS.Signals = "SIGKILL"): Promise<NodeExit> => {
    child.kill(name);
    return waitForExit();
  };

  return {
    pid,
    stdout,
    stderr,
    exited,
    get running() {
      return running;
    },
    send: (line) => void child.stdin.write(`${line}\n`),
    waitForLine: (pattern, { from = 0, timeoutMs = defaultTimeoutMs } = {}) => waitForLine(pattern, from, timeoutMs),
    waitForExit: ({ timeoutMs } = {}) => waitForExit(timeoutMs),
    kill,
    signal: (name) => void child.kill(name),
    pause: () => void (running && freeze(pid)),
    resume: () => void child.kill("SIGCONT"),
    [Symbol.asyncDispose]: async () => void (await kill()),
  };
}
