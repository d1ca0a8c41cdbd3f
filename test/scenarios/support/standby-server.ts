import { spawn } from "node:child_process";
import { chmodSync, chownSync, closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { until } from "../../harness/deadline.ts";
import { freePort } from "../../harness/free-port.ts";
import { postgresBinaries } from "../../harness/postgres-binaries.ts";
import { guard, signal, waitUntilGone } from "../../harness/processes.ts";
import { mustRun } from "../../harness/run-command.ts";
import { serverUser } from "../../harness/server-user.ts";
import type { PostgresServer } from "../../harness/start-postgres.ts";

export interface StandbyServer extends AsyncDisposable {
  readonly url: string;
  /** Waits until it has replayed everything the primary has written. */
  caughtUp(): Promise<void>;
  promote(): Promise<void>;
}

export interface StandbyOptions {
  /** Under this name the primary knows it, in `synchronous_standby_names` for example. */
  readonly name?: string;
  /** It keeps the logical slots that the primary has for failovers (PostgreSQL 17 and later). */
  readonly syncsSlots?: boolean;
}

/** A physical standby that streams from the primary, made by an online copy of its data. */
export async function startStandby(primary: PostgresServer, options: StandbyOptions = {}): Promise<StandbyServer> {
  const { name, syncsSlots = false } = options;
  const user = await serverUser();
  const folder = mkdtempSync(join(tmpdir(), "txbox-standby-"));
  chmodSync(folder, 0o755);
  if (user.uid !== undefined && user.gid !== undefined) chownSync(folder, user.uid, user.gid);
  const data = join(folder, "data");
  const label = await copyData(primary.url, data);
  const write = (name: string, text: string): void => {
    writeFileSync(join(data, name), text, { mode: 0o600 });
    if (user.uid !== undefined && user.gid !== undefined) chownSync(join(data, name), user.uid, user.gid);
  };
  write("backup_label", label);
  write("standby.signal", "");
  const port = await freePort();
  const { postgres } = await postgresBinaries(undefined, user, folder);
  const named = name === undefined ? "" : ` application_name=${name}`;
  const conninfo = `host=127.0.0.1 port=${primary.port} user=postgres dbname=postgres${named}`;
  const slot = `standby_${port}`;
  if (syncsSlots) await value(primary.url, `select pg_create_physical_replication_slot('${slot}')`);
  const settings = {
    port: String(port),
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    primary_conninfo: conninfo,
    hot_standby: "on",
    max_connections: "200",
    max_prepared_transactions: "64",
    wal_level: "logical",
    max_wal_senders: "20",
    max_replication_slots: "20",
    ...(syncsSlots ? { primary_slot_name: slot, sync_replication_slots: "on", hot_standby_feedback: "on" } : {}),
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const log = openSync(join(folder, "log"), "a");
  const child = spawn(postgres, ["-D", data, ...flags], {
    ...user,
    cwd: "/",
    stdio: ["ignore", log, log],
    detached: true,
  });
  closeSync(log);
  child.unref();
  const { pid } = child;
  if (pid === undefined) throw new Error("the standby could not be started");
  const release = guard(pid, { signal: "SIGQUIT", folder });
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  await until(() => value(url, "select pg_is_in_recovery()").catch(() => undefined), {
    what: "the standby",
    timeoutMs: 60_000,
  }).catch((error: unknown) => {
    throw new Error(`${String(error)}\n${readFileSync(join(folder, "log"), "utf8").slice(-3000)}`, { cause: error });
  });
  return {
    url,
    async caughtUp() {
      const target = await value(primary.url, "select pg_current_wal_flush_lsn()::text");
      await until(() => value(url, `select pg_last_wal_replay_lsn() >= '${String(target)}'::pg_lsn`), {
        what: "replay",
      });
    },
    async promote() {
      await value(url, "select pg_promote()");
    },
    async [Symbol.asyncDispose]() {
      signal(pid, "SIGQUIT");
      await waitUntilGone([pid], 10_000);
      release();
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** The low-level backup: the session that starts it must also end it. */
async function copyData(primaryUrl: string, target: string): Promise<string> {
  const client = new pg.Client({ connectionString: primaryUrl });
  await client.connect();
  try {
    const { rows } = await client.query<{ data_directory: string }>("show data_directory");
    await client.query("select pg_backup_start('standby', true)");
    // Files that vanish while they are copied are none that the copy needs.
    await mustRun("/bin/sh", [
      "-c",
      `cp -a "$1" "$2" 2>/dev/null; rm -rf "$2/postmaster.pid" "$2/postmaster.opts" "$2"/pg_replslot/*`,
      "sh",
      rows[0]?.data_directory ?? "",
      target,
    ]);
    const stopped = await client.query<{ labelfile: string }>("select labelfile from pg_backup_stop(false)");
    return stopped.rows[0]?.labelfile ?? "";
  } finally {
    await client.end();
  }
}

async function value(url: string, sql: string): Promise<unknown> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5000 });
  client.on("error", () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query<Record<string, unknown>>(sql);
    return Object.values(rows[0] ?? {})[0];
  } finally {
    await client.end().catch(() => undefined);
  }
}
