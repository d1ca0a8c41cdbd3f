import { fork } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ContestantName } from "../contestants/index.ts";
import type { Operations } from "./player-process.ts";

type Call = { [K in keyof Operations]: (...args: Parameters<Operations[K]>) => ReturnType<Operations[K]> };

/** A contestant in a process of its own, so that its memory, its garbage and its compiled code are its own as well. */
export interface Player extends Call {
  readonly name: ContestantName;
  readonly url: string;
  readonly pid: number;
  stop(): Promise<void>;
}

const BENCH = fileURLToPath(new URL("..", import.meta.url));

/** Nothing here takes that long unless it hangs. */
const CALL_MS = 300_000;
const COMPILED = fileURLToPath(new URL("../node_modules/.cache/compiled", import.meta.url));

interface Reply {
  id: number;
  value?: unknown;
  error?: string;
}

/** `bench`: the folder of the benchmark whose sources it runs; the present one unless another is given. */
export function startPlayer(name: ContestantName, url: string, more: readonly string[], bench = BENCH): Player {
  const child = fork(join(bench, "lib", "player-process.ts"), [name, url, ...more], {
    // For everybody what the documentation advises for a relay; the peers are as fast with it as without.
    execArgv: ["--disable-warning=ExperimentalWarning", "--max-semi-space-size=16"],
    // Whoever installs txbox has JavaScript: the memory of what makes it of TypeScript is not the relay's.
    env: { ...process.env, NODE_COMPILE_CACHE: COMPILED },
    serialization: "advanced",
  });
  const calls = new Map<number, PromiseWithResolvers<unknown>>();
  let id = 0;
  child.on("message", (reply: Reply) => {
    const call = calls.get(reply.id);
    calls.delete(reply.id);
    if (reply.error === undefined) call?.resolve(reply.value);
    else call?.reject(new Error(`${name}: ${reply.error}`));
  });
  child.once("exit", (code, signal) => {
    for (const call of calls.values()) call.reject(new Error(`the process of ${name} ended (${code ?? signal})`));
  });
  const invoke = (method: string, args: unknown[]): Promise<unknown> => {
    const call = Promise.withResolvers<unknown>();
    const timer = setTimeout(() => call.reject(new Error(`${name}: ${method} took over ${CALL_MS / 1000} s`)), CALL_MS);
    id += 1;
    calls.set(id, call);
    child.send({ id, method, args }, (error) => {
      if (error !== null) call.reject(error);
    });
    return call.promise.finally(() => clearTimeout(timer));
  };
  const own = { name, url, pid: child.pid ?? 0, stop: () => end(child) };
  return new Proxy(own as Player, {
    get: (target, key) =>
      // A player is handed around by promises, which look for a method `then`.
      key in target || typeof key === "symbol" || key === "then"
        ? Reflect.get(target, key)
        : (...args: unknown[]) => invoke(key, args),
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once("exit", resolve));
  child.disconnect();
  const timer = setTimeout(() => child.kill("SIGKILL"), 5000);
  await gone;
  clearTimeout(timer);
}
