import type { Author, Change, ChangePage, ChangeQuery } from "../../core/contracts.ts";
import { uuidv7 } from "../../core/uuid.ts";
import type { Note } from "../shared/change-details.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import type { Database, Document, MongoClientLike, MongoSession } from "./mongodb-client.ts";
import { explain } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { inTransaction } from "./mongodb-transaction.ts";

/** Changes are kept this long. */
export const CHANGES_MS: number = 365 * 86_400_000;

export interface ChangesOptions {
  client: MongoClientLike;
  database: Database;
  tables: Tables;
  /** The server has transactions. */
  transactions: boolean;
}

/** Part of a transaction, where there are any. */
export type InSession = { readonly session?: MongoSession };

/** Makes changes and notes them: in one transaction, or else the note first, so that nothing is changed without one. */
export class Changes {
  readonly author: Author | undefined;
  readonly #options: ChangesOptions;
  #user: Promise<string> | undefined;

  constructor(options: ChangesOptions, author: Author | undefined) {
    this.#options = options;
    this.author = author;
  }

  /** One change; `noted` by what was noted of a part before it. What `change` answers, and the name of the note. */
  async make<T>(
    note: Omit<Note, "count">,
    change: (session: InSession) => Promise<{ answer: T; count: number | null }>,
    noted?: string,
  ): Promise<{ answer: T; noted: string | undefined }> {
    const actor = this.author?.actor ?? (await (this.#user ??= this.#databaseUser()));
    const { client, transactions } = this.#options;
    if (!transactions) {
      const name = await this.#write(note, actor, noted, 0, {});
      const { answer, count } = await change({});
      await this.#write(note, actor, name, count, {});
      return { answer, noted: name };
    }
    const run = async (session: MongoSession) => {
      const { answer, count } = await change({ session });
      // A change without an effect is not noted.
      return { answer, noted: count === 0 ? noted : await this.#write(note, actor, noted, count, { session }) };
    };
    try {
      return await inTransaction(client, { run, hasBegun: () => true });
    } catch (error) {
      throw explain(error);
    }
  }

  async #write(
    { action, relay, details }: Omit<Note, "count">,
    actor: string,
    noted: string | undefined,
    count: number | null,
    session: InSession,
  ): Promise<string> {
    const { changes } = this.#options.tables;
    const redrive = action === "requeue" ? this.author?.redrive : undefined;
    const _id = noted ?? uuidv7().replaceAll("-", "");
    const known = { _id, at: new Date(), actor, reason: this.author?.reason ?? null, relay, details };
    const first = { ...known, action: redrive === undefined ? action : "redrive" };
    await changes.updateOne(
      redrive === undefined ? { _id } : { run: redrive },
      { $setOnInsert: count === null ? { ...first, count } : first, ...(count === null ? {} : { $inc: { count } }) },
      { ...session, upsert: true },
    );
    return _id;
  }

  async #databaseUser(): Promise<string> {
    const status = await this.#options.database.db.command({ connectionStatus: 1 });
    const { authenticatedUsers } = (status["authInfo"] ?? {}) as { authenticatedUsers?: { user?: string }[] };
    return authenticatedUsers?.[0]?.user ?? "(no user)";
  }
}

/** A page of changes, newest first. */
export async function listChanges({ changes }: Tables, query: ChangeQuery): Promise<ChangePage> {
  const { limit = DEFAULT_PAGE } = query;
  const filter: Document = {
    ...(query.since === undefined ? {} : { at: { $gte: query.since } }),
    ...(query.relay === undefined ? {} : { relay: query.relay }),
    ...(query.after === undefined ? {} : { _id: { $lt: query.after } }),
  };
  const rows = await changes.find(filter, { sort: { _id: -1 }, limit: limit + 1 });
  const page = rows.slice(0, limit);
  return {
    changes: page.map((row) => ({
      at: row["at"] as Date,
      actor: row["actor"] as string,
      reason: row["reason"] as string | null,
      action: row["action"] as Change["action"],
      relay: row["relay"] as string | null,
      details: row["details"] as Change["details"],
      count: row["count"] as number | null,
    })),
    next: rows.length > limit ? (page.at(-1)!["_id"] as string) : null,
  };
}
