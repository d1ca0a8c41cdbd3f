import type { MongoSession } from "./mongodb-client.ts";
import { isDuplicateKey } from "./mongodb-errors.ts";

/** The part of the driver's Collection that is needed to write a result. */
export interface ResultCollection {
  updateOne(
    filter: object,
    update: object,
    options?: object,
  ): Promise<{ readonly matchedCount: number; readonly upsertedCount: number }>;
}

export interface WriteResultOptions<Field extends string = string> {
  /** A field that rises, such as the revision: a document with a lower value is replaced, one with a higher stays. */
  newerBy?: Field;
  /** The handler's transaction, where there is one. */
  session?: MongoSession;
}

/**
 * Writes the result of a message under a key that follows from it, such as `page:revision`, so that a repeat changes
 * nothing. True when it was written, false when it was there already, or something newer.
 */
export async function writeResult<Result extends { _id: unknown }>(
  collection: ResultCollection,
  result: Result,
  { newerBy, session }: WriteResultOptions<keyof Result & string> = {},
): Promise<boolean> {
  const { _id, ...fields } = result;
  const options = { upsert: true, ...(session === undefined ? {} : { session }) };
  const [filter, update] =
    newerBy === undefined
      ? [{ _id }, { $setOnInsert: fields }]
      : [{ _id, [newerBy]: { $lt: result[newerBy] } }, { $set: fields }];
  for (let attempt = 1; ; attempt++) {
    try {
      const { matchedCount, upsertedCount } = await collection.updateOne(filter, update, options);
      return upsertedCount > 0 || (newerBy !== undefined && matchedCount > 0);
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
      // It is there: as new or newer, unless an older one was written at this very moment.
      if (newerBy === undefined || attempt === 3) return false;
    }
  }
}
