import { spawn } from "node:child_process";
import { chmodSync, chownSync, closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./deadline.ts";
import { freePort } from "./free-port.ts";
import { guard, signal, waitUntilGone } from "./processes.ts";
import { requireCommand } from "./require-command.ts";
import { serverUser } from "./server-user.ts";

export interface PgBouncerOptions {
  readonly postgresUrl: string;
  readonly poolMode?: "session" | "transaction" | "statement";
  readonly poolSize?: number;
  readonly settings?: Readonly<Record<string, string>>;
}

export interface PgBouncerServer {
  /** Same database as `postgresUrl`; every other database of that server is reachable by its name. */
  readonly url: string;
  readonly port: number;
  /** Undefined for one that is not ours. */
  readonly pid: number | undefined;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Starts a private PgBouncer in front of a server, or takes the one of TXBOX_TEST_PGBOUNCER_URL when that server is the one
 * of TXBOX_TEST_POSTGRES_URL and nothing but transaction mode is asked for. Throws ServerUnavailableError when there is no such command.
 */
export async function startPgBouncer(options: PgBouncerOptions): Promise<PgBouncerServer> {
  const external = externalPgBouncer(options);
  if (external !== undefined) return external;
  const command = await requireCommand("pgbouncer", { apt: "pgbouncer" });
  const user = await serverUser();
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "txbox-pgbouncer-"));
  chmodSync(folder, 0o755);
  writeFileSync(join(folder, "pgbouncer.ini"), configuration(options, port));
  if (user.uid !== undefined && user.gid !== undefined) chownSync(folder, user.uid, user.gid);

  const log = openSync(join(folder, "log"), "a");
  const child = spawn(command, [join(folder, "pgbouncer.ini")], {
    ...user,
    cwd: "/",
    stdio: ["ignore", log, log],
    detached: true,
  });
  closeSync(log);
  child.unref();
  child.once("error", () => undefined);
  const { pid } = child;
  if (pid === undefined) throw new Error(`could not run ${command}`);
  const release = guard(pid, { signal: "SIGTERM", folder });
  const remove = (): void => {
    release();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };

  try {
    const listening = (): Promise<boolean> => {
      if (child.exitCode !== null) throw new Error("PgBouncer ended while starting");
      return accepts(port);
    };
    await until(listening, { what: "start of PgBouncer", timeoutMs: 60_000 });
  } catch (error) {
    signal(pid, "SIGKILL");
    const output = readFileSync(join(folder, "log"), "utf8");
    remove();
    throw new Error(`${(error as Error).message}\n${output}`, { cause: error });
  }

  const stop = async (): Promise<void> => {
    // SIGTERM is an immediate shutdown up to 1.22 and a patient one since 1.23; SIGQUIT is immediate in both.
    signal(pid, "SIGQUIT");
    await waitUntilGone([pid], 3000).catch(() => signal(pid, "SIGKILL"));
    await waitUntilGone([pid], 3000);
    remove();
  };
  const url = new URL(options.postgresUrl);
  url.hostname = "127.0.0.1";
  url.port = String(port);
  url.password = "";
  return { url: url.href, port, pid, stop, [Symbol.asyncDispose]: stop };
}

function externalPgBouncer({ postgresUrl, ...asked }: PgBouncerOptions): PgBouncerServer | undefined {
  const { TXBOX_TEST_PGBOUNCER_URL: bouncer, TXBOX_TEST_POSTGRES_URL: postgres } = process.env;
  if (!bouncer || !postgres || new URL(postgres).host !== new URL(postgresUrl).host) return undefined;
  if ((asked.poolMode ?? "transaction") !== "transaction" || asked.poolSize !== undefined || asked.settings)
    return undefined;
  const url = new URL(bouncer);
  url.pathname = new URL(postgresUrl).pathname;
  const stop = (): Promise<void> => Promise.resolve();
  return { url: url.href, port: Number(url.port || 6432), pid: undefined, stop, [Symbol.asyncDispose]: stop };
}

function configuration(options: PgBouncerOptions, port: number): string {
  const target = new URL(options.postgresUrl);
  const password = target.password === "" ? "" : ` password=${decodeURIComponent(target.password)}`;
  const settings = {
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: "",
    auth_type: "any",
    pool_mode: options.poolMode ?? "transaction",
    default_pool_size: options.poolSize ?? 20,
    max_client_conn: 500,
    ignore_startup_parameters: "extra_float_digits",
    ...options.settings,
  };
  const user = decodeURIComponent(target.username) || "postgres";
  return [
    "[databases]",
    `* = host=${target.hostname} port=${target.port || 5432} user=${user}${password}`,
    "[pgbouncer]",
    ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
    "",
  ].join("\n");
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    const settle = (open: boolean): void => {
      socket.destroy();
      resolve(open);
    };
    socket.setTimeout(500, () => settle(false));
    socket.once("connect", () => settle(true));
    socket.once("error", () => settle(false));
  });
}
