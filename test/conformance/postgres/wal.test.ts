import { afterAll, describe } from "vitest";
import { serverOrSkip, startPostgres } from "../../harness/index.ts";
import { postgresByStream } from "../targets.ts";
import { postgresSuite } from "./postgres-suite.ts";

// A server of its own: slots are made when the transactions of all of it have ended.
const slot = await serverOrSkip("PostgreSQL", () =>
  startPostgres({ owned: true, settings: { max_replication_slots: "100", max_wal_senders: "100" } }),
);
afterAll(() => slot.stop());

describe.skipIf(slot.skipped)("PostgreSQL by its log", () => {
  postgresSuite(postgresByStream, "node-postgres", () => slot.server.url, {}, { stream: true });
});
