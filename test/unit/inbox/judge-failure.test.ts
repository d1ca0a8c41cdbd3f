import { MongoNetworkError, MongoNetworkTimeoutError, MongoServerError } from "mongodb";
import { describe, expect, it } from "vitest";
import { PermanentError, TxboxError, UnavailableError } from "../../../src/core/errors.ts";
import { judgeFailure } from "../../../src/inbox/judge-failure.ts";
import { classify as ofMongo } from "../../../src/stores/mongodb/classify-error.ts";
import { classify } from "../../../src/stores/postgres/classify-error.ts";

const coded = (code: string) => Object.assign(new Error(code), { code });

describe("judgeFailure", () => {
  it.each([
    ["a handler's error", new Error("x"), true, "failed"],
    ["something thrown that is no error", "x", true, "failed"],
    ["a handler's constraint violation", coded("23505"), true, "failed"],
    ["a handler that could not reach its own target", coded("ECONNREFUSED"), true, "failed"],
    ["a PermanentError", new PermanentError("x"), true, "rejected"],
    ["a PermanentError of another copy of the package", coded("permanent"), true, "rejected"],
    ["an UnavailableError", new UnavailableError("x"), true, "unavailable"],
    ["a handler's timeout", new TxboxError("handler_timeout", "x"), true, "failed"],
    ["a shutdown in the handler", coded("57P01"), true, "unavailable"],
    ["a session that a handler kept idle too long", coded("25P03"), true, "failed"],
    [
      "a session that ended under a handler without an error of the server",
      new Error("Connection terminated"),
      true,
      "failed",
    ],
    ["a limit that a handler exceeded", coded("53400"), true, "failed"],
    ["memory that a handler used up", coded("53200"), true, "failed"],
    ["a transaction that a handler made read-only", coded("25006"), true, "failed"],
    ["a disk that is full for a handler too", coded("53100"), true, "unavailable"],
    ["too many connections for a handler too", coded("53300"), true, "unavailable"],
    ["a limit that the ledger exceeded", coded("53400"), false, "unavailable"],
    ["an expired receipt", new TxboxError("receipt_expired", "x"), false, "rejected"],
    ["a missing schema", new TxboxError("schema_missing", "x"), false, "unavailable"],
    ["a refused connection", coded("ECONNREFUSED"), false, "unavailable"],
    ["a broken pipe", coded("EPIPE"), false, "unavailable"],
    ["a pool's timeout", new Error("timeout exceeded when trying to connect"), false, "unavailable"],
    ["too many connections", coded("53300"), false, "unavailable"],
    ["a full disk", coded("53100"), false, "unavailable"],
    ["a standby", coded("25006"), false, "unavailable"],
    ["a lost connection", coded("08006"), false, "unavailable"],
    ["a deferred constraint at commit", coded("23503"), false, "failed"],
    ["a conflict before the handler", coded("40001"), false, "unavailable"],
    ["a conflict that a handler cannot get rid of", coded("40001"), true, "failed"],
    ["a right that the ledger does not have", coded("42501"), false, "unavailable"],
    ["a right that a handler does not have", coded("42501"), true, "failed"],
    ["a server without transactions", new TxboxError("no_transaction", "x"), false, "unavailable"],
    ["a handler that ends its transaction", new TxboxError("no_transaction", "x"), true, "failed"],
  ])("takes %s rightly", (_, error, fromHandler, status) => {
    expect(judgeFailure(error, fromHandler, { classify })).toEqual({ status, error });
  });

  it("says which part is out, and for how long, as the error does", () => {
    const error = new UnavailableError("x", { route: "hooks.example.com", retryAfterMs: 5000 });
    const route = { route: "hooks.example.com", retryAfterMs: 5000 };
    expect(judgeFailure(error, true, { classify })).toEqual({ status: "unavailable", error, ...route });
    const foreign = Object.assign(coded("unavailable"), { route: 5, retryAfterMs: -1 });
    expect(judgeFailure(foreign, true, { classify })).toEqual({ status: "unavailable", error: foreign });
  });

  it.each([
    ["a connection lost under a handler", new MongoNetworkError("x"), true, "unavailable"],
    ["an operation of a handler that got no answer", new MongoNetworkTimeoutError("x"), true, "failed"],
    ["the ledger's that got none", new MongoNetworkTimeoutError("x"), false, "unavailable"],
    ["a handler's duplicate key", new MongoServerError({ code: 11_000 }), true, "failed"],
    ["a handler's other target", coded("ECONNREFUSED"), true, "failed"],
    [
      "an outage that a library wrapped",
      new Error("save failed", { cause: new MongoNetworkError("x") }),
      true,
      "unavailable",
    ],
  ])("takes %s rightly on MongoDB", (_, error, fromHandler, status) => {
    expect(judgeFailure(error, fromHandler, { classify: ofMongo })).toEqual({ status, error });
  });
});
