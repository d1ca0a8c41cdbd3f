import type { Clock } from "../../../core/contracts.ts";
import { errorCode } from "../../../core/errors.ts";
import type { SqlRunner } from "../postgres-client.ts";
import { FENCE, type Cursor } from "../postgres-cursor.ts";
import type { Names } from "../postgres-names.ts";
import { parseLsn, type Lsn } from "./pgoutput.ts";
import { ReplicationConnection, type ReplicationClient } from "./replication-connection.ts";
import { ELSEWHERE, WalRefusal } from "./wal-refusal.ts";
import {
  createSlotCommand,
  databaseName,
  dropSlot,
  dropSlotCommand,
  endMakingSql,
  endReader,
  lookAtSlot,
  slotName,
  type Slot,
  type SlotView,
} from "./wal-slot.ts";

/** How the store reaches the server's log. */
export interface ReplicationSettings {
  readonly connect: () => ReplicationClient;
  readonly maxRetainedBytes: number;
  readonly failover: boolean;
}

export interface RelaySlotOptions {
  readonly sql: SqlRunner;
  readonly names: Names;
  readonly relay: string;
  readonly clock: Clock;
  readonly replication: ReplicationSettings;
}

/** A stream that is this far behind is neither resumed nor continued: polling is faster. */
export const MOST_BEHIND: number = 64 * 1_048_576;
/** The server notices only a moment later that its reader has gone. */
const TRIES = 40;
const BETWEEN_MS = 25;

/** The replication slot of one relay. */
export class RelaySlot {
  readonly #options: RelaySlotOptions;
  #name: string | undefined;
  #making: ReplicationConnection | undefined;
  /** Why a slot is not to be made. */
  #refused: string | undefined;

  constructor(options: RelaySlotOptions) {
    this.#options = options;
  }

  async name(): Promise<string> {
    const { sql, names, relay } = this.#options;
    this.#name ??= slotName(await databaseName(sql), names, relay);
    return this.#name;
  }

  async look(): Promise<SlotView> {
    const { sql, names } = this.#options;
    return lookAtSlot(sql, names, await this.name());
  }

  /**
   * Whatever `prev` does not show was committed behind what the slot has confirmed. Not on a server that has taken over and
   * knows an older place: it gives transaction ids again that `prev` shows. "not ours": the cursor is another's by now, and
   * the slot with it.
   */
  async fit(cursor: Cursor, { confirmed, lost }: Slot): Promise<"fits" | "unfit" | "not ours"> {
    const { sql, names } = this.#options;
    const { id, fence, seq } = cursor;
    const [row] = await sql.query(
      `select wal_lsn::text from ${names.cursor} c
       where c.id = $1::text::bigint and ${FENCE} = $2::text and c.seq >= $3::text::bigint`,
      [id, fence, String(seq)],
    );
    if (row === undefined) return "not ours";
    const [lsn] = row;
    return lsn != null && confirmed !== undefined && !lost && confirmed <= parseLsn(lsn) ? "fits" : "unfit";
  }

  /** There is so much to read that polling is faster. */
  isFarBehind({ behind }: Slot): boolean {
    return behind > MOST_BEHIND;
  }

  /** For a process that has all lanes: another reader is a process that has lost them. False: it cannot be ended. */
  async freed(slot: Slot): Promise<boolean> {
    const { sql, clock } = this.#options;
    if (slot.activePid === undefined) return true;
    if (!(await endReader(sql, await this.name(), slot.activePid))) return false;
    for (let tries = 0; tries < TRIES; tries++) {
      if ((await this.look()).slot?.activePid === undefined) return true;
      await clock.sleep(BETWEEN_MS);
    }
    return false;
  }

  /**
   * Waits for every transaction that runs at this moment, on a connection of its own. Gives where the stream begins, and a
   * transaction: polling has to see the end of all that began before it.
   */
  async make(): Promise<{ from: Lsn; after: bigint }> {
    const { sql, replication } = this.#options;
    const name = await this.name();
    const connection = await ReplicationConnection.open(replication.connect);
    this.#making = connection;
    let isMade = false;
    try {
      this.#throwIfRefused();
      const [row] = await connection.query(createSlotCommand(name, replication.failover));
      isMade = true;
      const [next] = await sql.query("select pg_catalog.pg_current_xact_id()::text");
      this.#throwIfRefused();
      if ((await this.look()).slot?.ours !== true) throw new WalRefusal(ELSEWHERE);
      return { from: parseLsn(row![1]!), after: BigInt(next![0]!) };
    } catch (error) {
      // No process would look after it; on another server, none ever does.
      if (isMade) await connection.query(dropSlotCommand(name)).catch(() => undefined);
      this.#throwIfRefused();
      throw error;
    } finally {
      this.#making = undefined;
      connection.close();
    }
  }

  /** Neither a slot that is being made at this moment is wanted, nor one that is about to be. */
  async refuseMaking(why: string): Promise<void> {
    this.#refused = why;
    const pid = this.#making?.processId;
    // The server would go on making it, and keep it.
    if (pid !== undefined) await this.#asReplication((connection) => connection.query(endMakingSql(pid)));
  }

  /** With the rights of the role that made the slot, on the server where it was made. */
  async #asReplication<T>(run: (connection: ReplicationConnection) => Promise<T>): Promise<T> {
    const connection = await ReplicationConnection.open(this.#options.replication.connect);
    try {
      return await run(connection);
    } finally {
      connection.close();
    }
  }

  allowMaking(): void {
    this.#refused = undefined;
  }

  #throwIfRefused(): void {
    if (this.#refused !== undefined) throw new WalRefusal(this.#refused);
  }

  /** True when it is gone. */
  async drop(): Promise<boolean> {
    const { sql, clock } = this.#options;
    const name = await this.name();
    for (let tries = 0; tries < TRIES; tries++) {
      if (await dropSlot(sql, name).catch((error: unknown) => this.#dropAsItsMaker(name, error))) return true;
      await clock.sleep(BETWEEN_MS);
    }
    return false;
  }

  /** The role of the store need not be the one that replicates. */
  async #dropAsItsMaker(name: string, refusal: unknown): Promise<boolean> {
    if (errorCode(refusal) !== "42501") throw refusal;
    const { slot } = await this.look();
    if (slot?.ours !== true) return true;
    if (slot.activePid !== undefined) return false;
    await this.#asReplication((connection) => connection.query(dropSlotCommand(name)));
    return true;
  }

  keepsTooMuch({ retained }: Slot): boolean {
    return retained > this.#options.replication.maxRetainedBytes;
  }
}
