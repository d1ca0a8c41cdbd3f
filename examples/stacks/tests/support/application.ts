import { spawn, type ChildProcess } from "node:child_process";
import { freePort, until, withDeadline } from "../../../../test/harness/index.ts";

export interface ApplicationOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Printed when it listens. */
  readonly ready: RegExp;
}

/** A service in a process of its own. */
export interface Application extends AsyncDisposable {
  readonly url: string;
  output(): string;
  get<T>(path: string, headers?: Record<string, string>): Promise<T>;
  post<T>(path: string, body: object): Promise<T>;
  /** Sends SIGTERM and waits for the end; gives the code or the signal that ended it. */
  stop(): Promise<number | string | null>;
}

export async function startApplication(
  command: string,
  args: readonly string[],
  { cwd, env, ready }: ApplicationOptions,
): Promise<Application> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const child: ChildProcess = spawn(command, args, {
    cwd,
    env: { ...process.env, PORT: String(port), HOSTNAME: "127.0.0.1", NODE_ENV: "production", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  child.stdout!.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));
  child.stderr!.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));
  const ended = new Promise<number | string | null>((resolve) => {
    child.once("error", (error) => resolve(String(error)));
    child.once("close", (code, signal) => resolve(signal ?? code));
  });
  let over = false;
  void ended.then(() => (over = true));
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await ended;
  };
  try {
    await until(
      () => {
        if (over) throw new Error(`${command} ${args.join(" ")} ended`);
        return ready.test(output);
      },
      { what: `${ready} of ${command}`, timeoutMs: 90_000 },
    );
  } catch (error) {
    await kill();
    throw new Error(`${String(error)}\n${output}`, { cause: error });
  }
  async function request<T>(path: string, init: RequestInit): Promise<T> {
    const response = await fetch(url + path, { ...init, signal: AbortSignal.timeout(30_000) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path}: ${response.status} ${text}\n${output}`);
    return JSON.parse(text) as T;
  }
  return {
    url,
    output: () => output,
    get: (path, headers = {}) => request(path, { headers }),
    post: (path, body) =>
      request(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    async stop() {
      child.kill("SIGTERM");
      return withDeadline(ended, 30_000, `end of ${command}\n${output}`);
    },
    [Symbol.asyncDispose]: kill,
  };
}
