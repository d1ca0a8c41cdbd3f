import { TxboxError } from "../../core/errors.ts";
import { shownValue } from "../../core/value-kind.ts";
import type { Database } from "./mongodb-client.ts";
import { Table } from "./table.ts";

/** The collections of a store. */
export interface Names {
  readonly outbox: string;
  readonly dead: string;
  /** A document per relay: its lanes and who owns them. */
  readonly relays: string;
  /** A document per stream and key: the last position given out. */
  readonly sequences: string;
  readonly migrations: string;
  readonly inbox: string;
  /** What relays and consumers did lately. */
  readonly samples: string;
  /** What people changed, and why. */
  readonly changes: string;
}

export function mongoNames(outbox: string, inbox: string): Names {
  for (const [field, name] of Object.entries({ collection: outbox, inboxCollection: inbox })) {
    if (typeof name === "string" && /^[A-Za-z_][\w.-]{0,80}$/.test(name) && !name.startsWith("system.")) continue;
    throw new TxboxError("invalid_option", `createMongoStore: ${field} cannot be ${shownValue(name)}`, {
      field,
      fix: "Use letters, digits and _ . -, beginning with a letter",
    });
  }
  return {
    outbox,
    dead: `${outbox}_dead`,
    relays: `${outbox}_relays`,
    sequences: `${outbox}_sequences`,
    migrations: `${outbox}_migrations`,
    inbox,
    samples: `${outbox}_samples`,
    changes: `${outbox}_changes`,
  };
}

export type Tables = { readonly [Name in keyof Names]: Table };

export function tablesOf(database: Database, names: Names, deadlineMs?: number): Tables {
  const table = (name: string) => new Table(database.collection(name), deadlineMs);
  return {
    outbox: table(names.outbox),
    dead: table(names.dead),
    relays: table(names.relays),
    sequences: table(names.sequences),
    migrations: table(names.migrations),
    inbox: table(names.inbox),
    samples: table(names.samples),
    changes: table(names.changes),
  };
}
