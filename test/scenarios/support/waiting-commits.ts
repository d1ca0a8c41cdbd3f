import pg from "pg";
import type { createOutbox } from "../../../src/outbox/outbox.ts";
import type { AnyEvents } from "../../../src/core/message.ts";
import { until } from "../../harness/deadline.ts";
import type { Numbered } from "./outbox-database.ts";

type Outbox = ReturnType<typeof createOutbox<AnyEvents>>;

/**
 * A server whose commits wait for a standby that there is not: they are in its log, and not in sight. Only those of
 * connections that ask for it do so, see `commitsLocally`.
 */
export async function withWaitingCommits(url: string, run: (commits: WaitingCommits) => Promise<void>): Promise<void> {
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  const opened: pg.Client[] = [];
  const release = async (): Promise<void> => {
    await admin.query("alter system reset synchronous_standby_names");
    await admin.query("select pg_reload_conf()");
  };
  try {
    await admin.query("set synchronous_commit = local");
    await admin.query("alter system set synchronous_standby_names = 'nobody'");
    await admin.query("select pg_reload_conf()");
    await run({
      release,
      async commit(outbox, { key, ...payload }) {
        const client = new pg.Client({ connectionString: url });
        opened.push(client);
        await client.connect();
        await client.query("set synchronous_commit = on");
        await client.query("begin");
        await outbox.enqueue(client, { stream: "orders", type: "changed", key, payload: { key, ...payload } });
        const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
        const committed = client.query("commit");
        committed.catch(() => undefined);
        const waits = "select 1 from pg_stat_activity where pid = $1 and wait_event = 'SyncRep'";
        await until(async () => (await admin.query(waits, [rows[0]!.pid])).rows.length > 0, {
          what: "a waiting commit",
        });
        return { done: committed };
      },
    });
  } finally {
    await release();
    await Promise.all([admin, ...opened].map((client) => client.end()));
  }
}

export interface WaitingCommits {
  /** A message whose commit waits. */
  commit(outbox: Outbox, message: Numbered & { key: string }): Promise<{ done: Promise<unknown> }>;
  /** They wait no more. */
  release(): Promise<void>;
}

/** New connections to this database do not wait for standbys, unless they ask for it. */
export async function commitsLocally(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`alter database "${new URL(url).pathname.slice(1)}" set synchronous_commit = 'local'`);
  await client.end();
}
