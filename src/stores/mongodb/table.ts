import { answeredWithin } from "../shared/answer-deadline.ts";
import type { Document, RawCollection, UpdateResult } from "./mongodb-client.ts";

/**
 * A collection whose answers are waited for no longer than a deadline: a connection that breaks unnoticed would hold
 * its caller for ever. Whether the operation has arrived is unknown then, as with any broken connection.
 */
export class Table {
  readonly raw: RawCollection;
  readonly #deadlineMs: number | undefined;

  constructor(raw: RawCollection, deadlineMs?: number) {
    this.raw = raw;
    this.#deadlineMs = deadlineMs;
  }

  find(filter: Document, options?: Document): Promise<Document[]> {
    return this.#within(this.raw.find(filter, options).toArray());
  }

  /** Reads in order until `enough` says so. */
  async read(filter: Document, options: Document, enough: (document: Document) => boolean): Promise<Document[]> {
    const cursor = this.raw.find(filter, options);
    const documents: Document[] = [];
    const reading = async (): Promise<void> => {
      for await (const document of cursor) {
        documents.push(document);
        if (enough(document)) return;
      }
    };
    try {
      await this.#within(reading());
      return documents;
    } finally {
      await cursor.close().catch(() => undefined);
    }
  }

  findOne(filter: Document, options?: Document): Promise<Document | null> {
    return this.#within(this.raw.findOne(filter, options));
  }

  aggregate(pipeline: Document[], options?: Document): Promise<Document[]> {
    return this.#within(this.raw.aggregate(pipeline, options).toArray());
  }

  insertMany(documents: readonly Document[], options?: Document): Promise<unknown> {
    return this.#within(this.raw.insertMany(documents, options));
  }

  updateOne(filter: Document, update: Document | Document[], options?: Document): Promise<UpdateResult> {
    return this.#within(this.raw.updateOne(filter, update, options));
  }

  updateMany(filter: Document, update: Document | Document[], options?: Document): Promise<UpdateResult> {
    return this.#within(this.raw.updateMany(filter, update, options));
  }

  findOneAndUpdate(filter: Document, update: Document | Document[], options?: Document): Promise<Document | null> {
    return this.#within(this.raw.findOneAndUpdate(filter, update, options));
  }

  bulkWrite(operations: readonly Document[], options?: Document): ReturnType<RawCollection["bulkWrite"]> {
    return this.#within(this.raw.bulkWrite(operations, options));
  }

  count(filter: Document, options?: Document): Promise<number> {
    return this.#within(this.raw.countDocuments(filter, options));
  }

  #within<T>(answer: Promise<T>): Promise<T> {
    return this.#deadlineMs === undefined ? answer : answeredWithin(answer, this.#deadlineMs);
  }
}
