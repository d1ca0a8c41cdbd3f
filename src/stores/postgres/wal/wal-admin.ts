import { errorCode, TxboxError } from "../../../core/errors.ts";
import { literal, type SqlRunner } from "../postgres-client.ts";
import { quote, type Names } from "../postgres-names.ts";
import { databaseName, dropSlot, endReader, lookAtSlot, slotName, type SlotView } from "./wal-slot.ts";

/** What `source: "stream"` needs on the server, and the slots that it uses. */
export interface PostgresWal {
  /** Makes the publication; gives what else is missing. Needs ownership of the tables and CREATE on the database. */
  enable(): Promise<WalStatus>;
  /** Drops the slots of all relays and the publication. Relays go on by polling. */
  disable(): Promise<WalStatus>;
  status(): Promise<WalStatus>;
}

export interface WalStatus {
  /** Nothing is missing on the server. */
  ready: boolean;
  /** What is missing, each with what to do about it. */
  missing: string[];
  walLevel: string;
  publication: { name: string; state: SlotView["publication"] };
  relays: RelayWal[];
}

export interface RelayWal {
  relay: string;
  /** Processes that live, and how their new messages come: "stream", or "polling" and why. */
  processes: { owner: string; source: string }[];
  /** Undefined: there is none. */
  slot: { name: string; active: boolean; lost: boolean; retainedBytes: number } | undefined;
}

export function createWal(sql: SqlRunner, names: Names): PostgresWal {
  const relays = async (): Promise<string[]> => {
    const rows = await sql.query(`select name from ${names.relay} order by name`);
    return rows.map(([name]) => name!);
  };

  async function status(): Promise<WalStatus> {
    const database = await databaseName(sql);
    const processes = await sql.query(
      `select relay, owner, coalesce(source, 'polling') from ${names.member}
       where lease_until > pg_catalog.clock_timestamp() order by relay, owner`,
    );
    const found: RelayWal[] = [];
    for (const relay of await relays()) {
      const name = slotName(database, names, relay);
      const { slot } = await lookAtSlot(sql, names, name);
      found.push({
        relay,
        processes: processes.flatMap(([of, owner, source]) =>
          of === relay ? [{ owner: owner!, source: source! }] : [],
        ),
        slot: slot && { name, active: slot.activePid !== undefined, lost: slot.lost, retainedBytes: slot.retained },
      });
    }
    const { walLevel, publication } = await lookAtSlot(sql, names, "");
    const missing = missingOf(walLevel, publication, names);
    const state = { name: names.publication, state: publication };
    return { ready: missing.length === 0, missing, walLevel, publication: state, relays: found };
  }

  return {
    status,
    async enable() {
      const { publication } = await lookAtSlot(sql, names, "");
      if (publication === "missing") await sql.query(createPublication(names)).catch(explained);
      return status();
    },
    async disable() {
      // First, so that no relay makes its slot anew.
      await sql.query(`drop publication if exists ${quote(names.publication)}`).catch(explained);
      const database = await databaseName(sql);
      for (let round = 0; round < 2; round++) {
        for (const relay of await relays()) await dropForGood(sql, names, slotName(database, names, relay));
      }
      return status();
    },
  };
}

/**
 * Drops slots of relays that have no live process to read them: only maintenance looks at these. For a moment they are
 * left to a process that is about to come back, unless they keep too much.
 */
export async function dropForgottenSlots(sql: SqlRunner, names: Names, maxRetainedBytes: number): Promise<void> {
  const [found] = await sql.query(
    "select 1 from pg_catalog.pg_replication_slots where slot_name like 'txbox\\_%' limit 1",
  );
  if (found === undefined) return;
  const database = await databaseName(sql);
  const readers = `select max(m.lease_until) from ${names.member} m where m.relay = r.name and m.wal is not null`;
  const idle = await sql.query(
    `select name, coalesce(until, '-infinity') < pg_catalog.clock_timestamp() - interval '1 minute'
     from (select r.name, (${readers}) as until from ${names.relay} r) r
     where coalesce(until, '-infinity') < pg_catalog.clock_timestamp()`,
  );
  for (const [relay, forLong] of idle) {
    const name = slotName(database, names, relay!);
    const { slot } = await lookAtSlot(sql, names, name);
    if (slot?.ours !== true || slot.activePid !== undefined) continue;
    // A role that may not drop one leaves it to others, and goes on with the next.
    if (forLong === "t" || slot.retained > maxRetainedBytes) await dropSlot(sql, name).catch(() => undefined);
  }
}

/** For a person who has the rights, to be run by hand. */
export function createPublication(names: Names): string {
  return `create publication ${quote(names.publication)} for table ${names.message} with (publish = 'insert', publish_via_partition_root = true)`;
}

function missingOf(walLevel: string, publication: SlotView["publication"], names: Names): string[] {
  const missing: string[] = [];
  if (walLevel !== "logical") missing.push(`wal_level is ${walLevel}: set wal_level = logical and restart the server`);
  if (publication === "missing") missing.push(`the publication ${names.publication}: run txbox wal enable`);
  if (publication === "changed") {
    missing.push(
      `the publication ${names.publication} does not bring every insert: run txbox wal disable, then txbox wal enable`,
    );
  }
  return missing;
}

const TRIES = 40;
const BETWEEN_MS = 50;

/** Also one that is read at this moment. */
export async function dropForGood(sql: SqlRunner, names: Names, slot: string): Promise<void> {
  for (let tries = 0; tries < TRIES; tries++) {
    if (await dropSlot(sql, slot).catch((error: unknown) => mayNotDrop(error, slot))) return;
    const view = await lookAtSlot(sql, names, slot);
    const pid = view.slot?.activePid;
    if (pid !== undefined) await endReader(sql, slot, pid);
    await sql.query(`select pg_catalog.pg_sleep(${BETWEEN_MS / 1000})`);
  }
  throw new TxboxError("unavailable", `The replication slot ${slot} is in use`, {
    fix: `Stop the relay that reads from it, or end its session: select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = ${literal(slot)}`,
  });
}

function mayNotDrop(error: unknown, slot: string): never {
  if (errorCode(error) !== "42501") throw error;
  throw new TxboxError("invalid_option", `This role may not drop the replication slot ${slot} of the relay`, {
    fix: `Stop the processes of the relay, which drop it, or drop it as a role with the attribute REPLICATION: select pg_drop_replication_slot(${literal(slot)}). Then run the command again`,
    cause: error,
  });
}

function explained(error: unknown): never {
  if (errorCode(error) !== "42501") throw error;
  throw new TxboxError("invalid_option", "This role may not make or drop a publication of the log", {
    fix: "Run the command as the owner of the tables with the right CREATE on the database",
    cause: error,
  });
}
