import type { IncomingMessage } from "../../src/core/message.ts";
import { uuidv7 } from "../../src/core/uuid.ts";
import { transactionRunner, type PostgresTx } from "../../src/stores/postgres/postgres-client.ts";

/** A delivery with a new id, of the type that the handlers of these suites are for. */
export const incoming = (more: Partial<IncomingMessage> & { id?: string } = {}) => ({
  stream: "s",
  body: '{"n":1}',
  headers: {},
  ...more,
  id: more.id ?? uuidv7(),
  type: more.type ?? "t",
});

/** Runs a statement in a handler's transaction, whatever the driver. */
export const run = async (tx: PostgresTx, text: string) => transactionRunner(tx).query(text);
