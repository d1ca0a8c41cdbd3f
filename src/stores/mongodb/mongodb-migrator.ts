import type { Migrator, MigrationStep } from "../../core/contracts.ts";
import type { Database } from "./mongodb-client.ts";
import { isDuplicateKey, schemaMissing, schemaOutdated, schemaTooNew } from "./mongodb-errors.ts";
import { indexesOf, sameIndex, type IndexOptions, type IndexSpec } from "./mongodb-indexes.ts";
import type { Names } from "./mongodb-names.ts";

export interface MigratorOptions extends IndexOptions {
  database: Database;
  names: Names;
}

const VERSION = 1;
const NAMESPACE_NOT_FOUND = 26;
const NAMESPACE_EXISTS = 48;

interface Wrong {
  collection: string;
  index: IndexSpec;
  /** There is one of this name that does something else. */
  replaces: boolean;
}

/**
 * Collections and indexes. Making them is idempotent, so any number of processes may do it at once. One of them writes
 * the version first, and so tells that it did. Indexes that were dropped or changed are found and made again.
 */
export function createMigrator({ database, names, retentionMs }: MigratorOptions): Migrator {
  const wanted = indexesOf(names, { retentionMs });

  async function versionFound(): Promise<number | undefined> {
    const rows = await database.collection(names.migrations).find({}).toArray();
    const versions = rows.map(({ _id }) => Number(_id));
    return versions.length === 0 ? undefined : Math.max(...versions);
  }

  async function wrongIndexes(): Promise<Wrong[]> {
    const wrong: Wrong[] = [];
    for (const [collection, specs] of wanted) {
      const found = await existingIndexes(collection);
      for (const index of specs) {
        const same = found.find(({ name }) => name === index.name);
        if (!sameIndex(same, index)) wrong.push({ collection, index, replaces: same !== undefined });
      }
    }
    return wrong;
  }

  async function existingIndexes(collection: string) {
    try {
      return await database.collection(collection).indexes();
    } catch (error) {
      if ((error as { code?: unknown }).code === NAMESPACE_NOT_FOUND) return [];
      throw error;
    }
  }

  async function pending(): Promise<MigrationStep[]> {
    const found = await versionFound();
    if (found !== undefined && found > VERSION) throw schemaTooNew(found, VERSION);
    const wrong = await wrongIndexes();
    if (found === VERSION && wrong.length === 0) return [];
    const name = found === VERSION ? "mend_indexes" : "init";
    return [{ version: VERSION, name, script: scriptOf(names, wrong, found !== VERSION) }];
  }

  async function record(): Promise<boolean> {
    try {
      const row = { _id: VERSION, name: "init", applied_at: new Date() };
      await database.collection(names.migrations).insertOne(row, { writeConcern: { w: "majority" } });
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }

  return {
    pending,
    async migrate() {
      const steps = await pending();
      if (steps.length === 0) return [];
      for (const collection of wanted.keys()) await createCollection(database, collection);
      for (const { collection, index, replaces } of await wrongIndexes()) {
        if (replaces) await database.collection(collection).dropIndex(index.name);
        await database.collection(collection).createIndexes([{ ...index }]);
      }
      const first = await record();
      return first || steps[0]?.name === "mend_indexes" ? steps : [];
    },
    async check() {
      const found = await versionFound();
      if (found === undefined) throw schemaMissing(names.outbox);
      if (found > VERSION) throw schemaTooNew(found, VERSION);
      if (found < VERSION) throw schemaOutdated(`The txbox collections are at version ${found}, not ${VERSION}`);
      const [wrong] = await wrongIndexes();
      if (wrong === undefined) return;
      const { collection, index, replaces } = wrong;
      throw schemaOutdated(`Index ${index.name} of ${collection} ${replaces ? "was changed" : "is missing"}`);
    },
  };
}

async function createCollection({ db }: Database, name: string): Promise<void> {
  try {
    await db.createCollection(name);
  } catch (error) {
    if ((error as { code?: unknown }).code !== NAMESPACE_EXISTS) throw error;
  }
}

/** A script for mongosh, for operators who do not let applications make indexes. */
function scriptOf(names: Names, wrong: readonly Wrong[], withVersion: boolean): string {
  const collection = (name: string) => `db.getCollection(${JSON.stringify(name)})`;
  const lines = wrong.flatMap(({ collection: name, index, replaces }) => {
    const { key, ...options } = index;
    const create = `${collection(name)}.createIndex(${JSON.stringify(key)}, ${JSON.stringify(options)});`;
    return replaces ? [`${collection(name)}.dropIndex(${JSON.stringify(index.name)});`, create] : [create];
  });
  if (withVersion) {
    const row = `{ _id: ${VERSION}, name: "init", applied_at: new Date() }`;
    lines.push(`${collection(names.migrations)}.insertOne(${row});`);
  }
  return `${lines.join("\n")}\n`;
}
