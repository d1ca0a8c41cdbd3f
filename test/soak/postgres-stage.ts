import type pg from "pg";
import type { SqlTransaction } from "../../src/core/sql-transaction.ts";
import { startPostgres } from "../harness/start-postgres.ts";
import type { BusinessRow, Fact } from "./checker.ts";
import { bySource } from "../support/by-source.ts";
import type { Random } from "./random.ts";
import type { Stage, Watch, World } from "./stage.ts";
import { createWorld, openPool, soakStore } from "./world.ts";

export const postgresStage: Stage = {
  name: "postgres",
  writerFile: "writer-process.ts",
  start: () =>
    startPostgres({
      owned: true,
      fsync: true,
      settings: { max_connections: "300", log_checkpoints: "off", recovery_init_sync_method: "syncfs" },
    }),
  createWorld,
  openStore(url, connections) {
    const pool = openPool(url, connections);
    return { store: soakStore(pool), close: () => pool.end() };
  },
  async writeEffect(tx, { key, n, nonce, messageId }) {
    const values = [key, n, nonce, messageId];
    await (tx as SqlTransaction).query(
      "insert into effect (key, n, nonce, message_id) values ($1, $2, $3, $4)",
      values,
    );
  },
  watch,
};

/** The same with relays that read the server's log, whose slot and publication are tampered with. */
export const postgresWalStage: Stage = {
  ...postgresStage,
  name: "postgres-wal",
  // A stream that is opened takes a moment, and is to be broken while it brings something.
  patience: 4,
  async createWorld(serverUrl) {
    const world = await createWorld(serverUrl);
    const pool = openPool(world.source, 1);
    await soakStore(pool).wal.enable();
    await pool.end();
    return world;
  },
  openStore(url, connections) {
    const pool = openPool(url, connections);
    const store = bySource(soakStore(pool), "stream", (event) => {
      const detail = event.type === "stream_started" ? `from ${event.from}` : event.error;
      process.stdout.write(`${event.type} ${detail}\n`);
    });
    return { store, close: () => pool.end() };
  },
  watch(world) {
    const watched = watch(world);
    return { ...watched, disturb: (random) => tamper(world, random) };
  },
};

/**
 * What a person who knows nothing of relays could do to the server. While no stream is read there is nothing to break: a slot
 * that is being made waits for every transaction, and would never be there.
 */
async function tamper(world: World, random: Random): Promise<boolean> {
  const pool = openPool(world.source, 1);
  try {
    // The server may have been killed before it was set back.
    const changed = await pool.query("select 1 from pg_publication where pubname = 'txbox' and not pubinsert");
    if (changed.rowCount !== 0) await pool.query("alter publication txbox set (publish = 'insert')");
    const { rows } = await pool.query<{ slot_name: string }>(
      `select s.slot_name from pg_replication_slots s join pg_stat_replication r on r.pid = s.active_pid
       where s.slot_name like 'txbox_%' and r.state = 'streaming' and r.backend_start < clock_timestamp() - interval '1 second'`,
    );
    const slot = rows[0]?.slot_name;
    if (slot === undefined) return false;
    const cut =
      "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1 and active_pid is not null";
    const what = random.next();
    if (what < 0.35) {
      await pool.query(cut, [slot]);
    } else if (what < 0.8) {
      await pool.query(cut, [slot]);
      for (let tries = 0; tries < 20; tries++) {
        const dropped = await pool.query("select pg_drop_replication_slot($1)", [slot]).then(
          () => true,
          () => false,
        );
        if (dropped) break;
      }
      // A slot that was made anew starts later than what is left to read.
      if (random.chance(0.5)) await pool.query("select pg_create_logical_replication_slot($1, 'pgoutput')", [slot]);
    } else {
      await pool.query("alter publication txbox set (publish = 'update')");
      await new Promise((resolve) => setTimeout(resolve, random.int(10, 300)));
      await pool.query("alter publication txbox set (publish = 'insert')");
    }
    return true;
  } finally {
    await pool.end();
  }
}

function watch(world: World): Watch {
  const source = openPool(world.source, 4);
  const target = openPool(world.target, 2);
  const count = async (pool: pg.Pool, sql: string): Promise<number> =>
    Number((await pool.query<{ n: string }>(sql)).rows[0]?.n);
  return {
    store: soakStore(source),
    async resolve(random, all) {
      const { rows } = await source.query<{ gid: string }>(
        "select gid from pg_prepared_xacts where database = current_database() and prepared < now() - $1::interval",
        [all ? "0 s" : "2 s"],
      );
      let resolved = 0;
      for (const { gid } of rows) {
        const end = random.chance(0.6) ? "commit" : "rollback";
        await source.query(`${end} prepared '${gid}'`).then(
          () => resolved++,
          () => undefined,
        );
      }
      return resolved;
    },
    left: async () => ({
      undecided: await count(source, "select count(*) as n from pg_prepared_xacts"),
      committed: await count(source, "select count(*) as n from business"),
      effects: await count(target, "select count(distinct nonce) as n from effect"),
    }),
    async business() {
      const { rows } = await source.query<Omit<BusinessRow, "n"> & { n: string }>(
        "select key, n, nonce, kind from business",
      );
      return rows.map((row) => ({ ...row, n: Number(row.n) }));
    },
    async effects() {
      const { rows } = await target.query<Omit<Fact, "n"> & { n: string }>(
        "select key, n, nonce from effect order by seq",
      );
      return rows.map((row) => ({ ...row, n: Number(row.n) }));
    },
    async leftovers() {
      const { rows } = await source.query<Record<string, number>>(`select
        (select count(*)::int from txbox.parked) as parked, (select count(*)::int from txbox.blocked) as blocked,
        (select count(*)::int from txbox.scheduled) as scheduled, (select 64 - count(*)::int from txbox.lane l
          join txbox.cursor c on c.id = l.cursor_id where c.owner is not null and c.lease_until > clock_timestamp()) as "unowned lanes"`);
      return rows[0] ?? {};
    },
    close: async () => void (await Promise.all([source.end(), target.end()])),
  };
}
