import {
  MongoClientClosedError,
  MongoCompatibilityError,
  type MongoError,
  MongoErrorLabel,
  MongoInvalidArgumentError,
  MongoNetworkError,
  MongoNetworkTimeoutError,
  MongoParseError,
  MongoServerError,
  MongoServerSelectionError,
  MongoWriteConcernError,
} from "mongodb";
import mongoose from "mongoose";
import { describe, expect, it } from "vitest";
import type { StoreFailure } from "../../../../src/core/contracts.ts";
import { TxboxError } from "../../../../src/core/errors.ts";
import { classify } from "../../../../src/stores/mongodb/classify-error.ts";
import { isPassing } from "../../../../src/stores/mongodb/mongodb-errors.ts";

const server = (code: number, ...labels: string[]): MongoServerError =>
  labelled(new MongoServerError({ code, errmsg: `code ${code}` }), ...labels);

function labelled<E extends MongoError>(error: E, ...labels: string[]): E {
  for (const label of labels) error.addErrorLabel(label);
  return error;
}

const TRANSIENT = MongoErrorLabel.TransientTransactionError;
const UNKNOWN = "UnknownTransactionCommitResult";
const selection = new MongoServerSelectionError("no primary", {} as never);
const concern = new MongoWriteConcernError({
  writeConcernError: { code: 64, errmsg: "waiting for replication" },
} as never);

type Expected = StoreFailure | undefined;

describe("classify of MongoDB", () => {
  it.each<[what: string, error: unknown, ofStore: Expected, ofHandler: Expected]>([
    ["a lost connection", new MongoNetworkError("reset"), "unavailable", "unavailable"],
    ["the same inside a transaction", labelled(new MongoNetworkError("x"), TRANSIENT), "unavailable", "unavailable"],
    ["no answer in time", new MongoNetworkTimeoutError("timed out"), "unavailable", "statement"],
    [
      "no connection in time",
      new MongoNetworkTimeoutError("timed out", { beforeHandshake: true }),
      "unavailable",
      "unavailable",
    ],
    ["no primary", selection, "unavailable", "unavailable"],
    ["a client that was closed", new MongoClientClosedError(), "unavailable", "unavailable"],
    ["NotWritablePrimary", server(10_107, "RetryableWriteError"), "unavailable", "unavailable"],
    ["PrimarySteppedDown inside a transaction", server(189, TRANSIENT), "unavailable", "unavailable"],
    ["InterruptedDueToReplStateChange", server(11_602, TRANSIENT), "unavailable", "unavailable"],
    ["InterruptedAtShutdown", server(11_600), "unavailable", "unavailable"],
    ["ShutdownInProgress", server(91), "unavailable", "unavailable"],
    ["a full disk", server(14_031), "unavailable", "unavailable"],
    ["a majority that does not answer", concern, "unavailable", "unavailable"],
    ["an unknown commit", labelled(new MongoNetworkError("x"), UNKNOWN), "unavailable", "unavailable"],
    ["an unknown commit that ran out of time", server(50, UNKNOWN), "unavailable", "unavailable"],
    [
      "a code of tomorrow that the server calls retryable",
      server(99_999, "RetryableWriteError"),
      "unavailable",
      "unavailable",
    ],
    ["a time limit", server(50), "unavailable", "statement"],
    ["a killed operation", server(11_601), "unavailable", "statement"],
    ["a transaction that was open for too long", server(290, TRANSIENT), "unavailable", "statement"],
    ["a write conflict", server(112, TRANSIENT), "conflict", "conflict"],
    ["a transaction that the server does not know", server(251, TRANSIENT), "conflict", "conflict"],
    ["a code of tomorrow that the server calls transient", server(99_999, TRANSIENT), "conflict", "conflict"],
    ["a wrong password", server(18), "configuration", "configuration"],
    ["a missing right", server(13), "configuration", "configuration"],
    ["a wrong address", new MongoParseError("Invalid scheme"), "configuration", "configuration"],
    ["a server too old", new MongoCompatibilityError("x"), "configuration", "configuration"],
    [
      "a server without transactions",
      new MongoServerError({ code: 20, errmsg: "Transaction numbers are only allowed on a replica set member" }),
      "configuration",
      "configuration",
    ],
    ["a duplicate key", server(11_000), "statement", "statement"],
    ["a failed validation", server(121), "statement", "statement"],
    ["a wrong argument", new MongoInvalidArgumentError("x"), "statement", "statement"],
    [
      "an outage that a library wrapped",
      new Error("saving failed", { cause: selection }),
      "unavailable",
      "unavailable",
    ],
    [
      "a conflict two causes deep",
      new Error("a", { cause: new Error("b", { cause: server(112) }) }),
      "conflict",
      "conflict",
    ],
    ["no primary, by mongoose", new mongoose.Error.MongooseServerSelectionError("x"), "unavailable", "unavailable"],
    [
      "a buffer of mongoose that was never emptied",
      new mongoose.Error("Operation `orders.insertOne()` buffering timed out after 10000ms"),
      "unavailable",
      "unavailable",
    ],
    ["another error of mongoose", new mongoose.Error("You must not"), undefined, undefined],
    ["an invalid document of mongoose", new mongoose.Error.ValidationError(), undefined, undefined],
    ["an error of other code", Object.assign(new Error("x"), { code: "ECONNREFUSED" }), undefined, undefined],
    ["an error of txbox", new TxboxError("schema_missing", "x", { cause: server(26) }), undefined, undefined],
    ["nothing", undefined, undefined, undefined],
  ])("%s", (_, error, ofStore, ofHandler) => {
    expect(classify(error)).toBe(ofStore);
    expect(classify(error, "store")).toBe(ofStore);
    expect(classify(error, "handler")).toBe(ofHandler);
  });

  it("says what may pass by waiting", () => {
    const passing = [selection, server(112), server(50), new Error("of unknown origin")];
    const lasting = [server(11_000), server(13), new TxboxError("schema_missing", "x")];
    expect(passing.map(isPassing)).toEqual([true, true, true, true]);
    expect(lasting.map(isPassing)).toEqual([false, false, false]);
  });
});
