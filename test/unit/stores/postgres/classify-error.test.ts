import { describe, expect, it } from "vitest";
import type { StoreFailure } from "../../../../src/core/contracts.ts";
import { TxboxError } from "../../../../src/core/errors.ts";
import { classify, isConnectionLoss, isSerializationFailure } from "../../../../src/stores/postgres/classify-error.ts";

const coded = (code: string, message = code) => Object.assign(new Error(message), { code });

type Expected = StoreFailure | undefined;

describe("classify of PostgreSQL", () => {
  it.each<[what: string, error: unknown, ofStore: Expected, ofHandler: Expected]>([
    ["a lost connection", coded("08006"), "unavailable", "unavailable"],
    ["a shutdown", coded("57P01"), "unavailable", "unavailable"],
    ["a server that starts", coded("57P03"), "unavailable", "unavailable"],
    ["a full disk", coded("53100"), "unavailable", "unavailable"],
    ["too many connections", coded("53300"), "unavailable", "unavailable"],
    ["memory used up", coded("53200"), "unavailable", "statement"],
    ["a limit", coded("53400"), "unavailable", "statement"],
    ["an error of the disk", coded("58030"), "unavailable", "statement"],
    ["a standby, or a transaction made read-only", coded("25006"), "unavailable", "statement"],
    ["a serialisation failure", coded("40001"), "conflict", "conflict"],
    ["a deadlock", coded("40P01"), "conflict", "conflict"],
    ["a wrong password", coded("28P01"), "configuration", "configuration"],
    ["a role that does not exist", coded("28000"), "configuration", "configuration"],
    ["a database that does not exist", coded("3D000"), "configuration", "configuration"],
    ["a missing right", coded("42501"), "configuration", "configuration"],
    ["a duplicate key", coded("23505"), "statement", "statement"],
    ["a missing table", coded("42P01"), "statement", "statement"],
    ["a statement that took too long", coded("57014"), "statement", "statement"],
    ["a session that was idle for too long", coded("25P03"), "statement", "statement"],
    ["a refused connection", coded("ECONNREFUSED"), "unavailable", undefined],
    ["a broken pipe", coded("EPIPE"), "unavailable", undefined],
    ["a name that cannot be looked up", coded("EAI_AGAIN"), "unavailable", undefined],
    ["a connection that postgres.js lost", coded("CONNECTION_CLOSED"), "unavailable", undefined],
    ["a connection that postgres.js did not get", coded("CONNECT_TIMEOUT"), "unavailable", undefined],
    ["a method that postgres.js does not know", coded("AUTH_TYPE_NOT_IMPLEMENTED"), "configuration", undefined],
    ["a connection that node-postgres lost", new Error("Connection terminated unexpectedly"), "unavailable", undefined],
    ["a pool's timeout", new Error("timeout exceeded when trying to connect"), "unavailable", undefined],
    [
      "no password",
      new Error("SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string"),
      "configuration",
      undefined,
    ],
    ["a closed PGlite", new Error("PGlite is closed"), "unavailable", undefined],
    ["a conflict that an ORM wrapped", new Error("Failed query", { cause: coded("40001") }), "conflict", "conflict"],
    [
      "an outage that an ORM wrapped",
      new Error("Failed query", { cause: coded("57P01") }),
      "unavailable",
      "unavailable",
    ],
    ["a lost connection that an ORM wrapped", new Error("x", { cause: coded("ECONNRESET") }), "unavailable", undefined],
    ["an error of other code", new Error("no"), undefined, undefined],
    ["an error of txbox", new TxboxError("schema_missing", "x", { cause: coded("42P01") }), undefined, undefined],
    ["nothing", undefined, undefined, undefined],
  ])("%s", (_, error, ofStore, ofHandler) => {
    expect(classify(error)).toBe(ofStore);
    expect(classify(error, "store")).toBe(ofStore);
    expect(classify(error, "handler")).toBe(ofHandler);
  });

  it("knows what to run again, and when the connection is gone", () => {
    expect(isSerializationFailure(new Error("Failed query", { cause: coded("40P01") }))).toBe(true);
    expect(isSerializationFailure(coded("23505"))).toBe(false);
    expect(["57P01", "08006", "CONNECTION_CLOSED", "EPIPE"].map((code) => isConnectionLoss(coded(code)))).toEqual([
      true,
      true,
      true,
      true,
    ]);
    expect(["53100", "23505", "58030"].map((code) => isConnectionLoss(coded(code)))).toEqual([false, false, false]);
  });
});
