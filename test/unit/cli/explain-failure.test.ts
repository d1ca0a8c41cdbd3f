import { describe, expect, test } from "vitest";
import { ConfigCallError } from "../../../src/cli/config-call.ts";
import { EXIT } from "../../../src/cli/exit-code.ts";
import { explainFailure } from "../../../src/cli/explain-failure.ts";
import { UsageError } from "../../../src/cli/usage-error.ts";
import { TxboxError } from "../../../src/core/errors.ts";

const coded = (code: string, message: string): Error => Object.assign(new Error(message), { code });

describe("explainFailure", () => {
  test.each([
    [new UsageError("no such flag", { command: "status" }), EXIT.usage, "no such flag"],
    [new TxboxError("invalid_option", "bad", { fix: "Do it" }), EXIT.usage, "bad. Do it"],
    [new TxboxError("invalid_option", "It said no.", { fix: "Do it" }), EXIT.usage, "It said no. Do it"],
    [new TxboxError("schema_missing", "none"), EXIT.schema, "none"],
    [new TxboxError("schema_outdated", "old"), EXIT.schema, "old"],
    [new TxboxError("schema_too_new", "new"), EXIT.schema, "new"],
    [new TxboxError("standby", "standby"), EXIT.refused, "standby"],
    [new TxboxError("restored_copy", "copy"), EXIT.refused, "copy"],
    [new TxboxError("not_found", "gone"), EXIT.failed, "gone"],
    [coded("ECONNREFUSED", "connect"), EXIT.unreachable, "Cannot reach db:5432/app: the connection was refused"],
    [
      Object.assign(new AggregateError([coded("ECONNREFUSED", "a")]), { code: "ECONNREFUSED" }),
      EXIT.unreachable,
      "refused",
    ],
    [coded("28P01", "password authentication failed"), EXIT.unreachable, "db:5432/app refused the login: password"],
    [coded("3D000", 'database "app" does not exist'), EXIT.unreachable, "does not exist"],
    [coded("57P03", "the database system is starting up"), EXIT.unreachable, "starting up"],
    [
      new Error("Authentication failed."),
      EXIT.unreachable,
      "db:5432/app refused the login: Authentication failed. Check",
    ],
    [new Error("Command find requires authentication"), EXIT.unreachable, "db:5432/app refused the login"],
    [new Error("timeout exceeded when trying to connect"), EXIT.unreachable, "Cannot reach"],
    [coded("25006", "cannot execute INSERT in a read-only transaction"), EXIT.refused, "primary"],
    [coded("42501", "permission denied for table x"), EXIT.failed, "txbox grants"],
    [
      Object.assign(new Error("tls must be true or false"), { name: "MongoParseError" }),
      EXIT.usage,
      "URL of db:5432/app",
    ],
    [Object.assign(coded("ENOENT", "no such file"), { syscall: "open" }), EXIT.usage, "no such file"],
    [new Error("boom"), EXIT.failed, "boom"],
    ["text", EXIT.failed, "text"],
  ])("%s", (error, exitCode, message) => {
    const explained = explainFailure(error, "db:5432/app");
    expect(explained.exitCode).toBe(exitCode);
    expect(explained.message).toContain(message);
  });

  test("says where to read more", () => {
    const error = new UsageError("no such flag", { command: "status" });
    expect(explainFailure(error).advice).toBe("See `txbox status --help`");
  });

  test("what the configuration's functions met is not the database's", () => {
    const error = new ConfigCallError("relays.a.publisher() failed: connect", coded("ECONNREFUSED", "connect"));
    expect(explainFailure(error, "db:5432/app")).toEqual({
      exitCode: EXIT.failed,
      code: "ECONNREFUSED",
      message: "relays.a.publisher() failed: connect",
    });
  });
});
