import { describe, expect, test } from "vitest";
import { errorGroup } from "../../../src/core/error-group.ts";
import { describeError } from "../../../src/core/errors.ts";

/** As Drizzle makes it. */
function drizzleError(query: string, params: readonly unknown[], cause?: unknown): Error {
  const error = new Error(`Failed query: ${query}\nparams: ${params.join(",")}`, { cause });
  return Object.assign(error, { query, params });
}

describe("describeError", () => {
  test("says the reason of a failed query of Drizzle first, and none of its values", () => {
    const query = 'insert into "payments" ("order_id", "card") values ($1, $2)';
    const error = drizzleError(query, ["o-1", "4111 1111"], new Error('duplicate key value violates "payments_pkey"'));
    expect(describeError(error)).toBe(`Error: duplicate key value violates "payments_pkey" (Failed query: ${query})`);
  });

  test("a long query does not cut the reason off", () => {
    const error = drizzleError(`select ${"a, ".repeat(1000)}b`, [], new Error("column b does not exist"));
    expect(describeError(error)).toMatch(/^Error: column b does not exist \(Failed query: select a, .*…$/);
    expect(describeError(error)).toHaveLength(1000);
  });

  test("errors that differ only in the values of a query are of one kind", () => {
    const text = (customer: string): string =>
      describeError(drizzleError("select $1", [customer], new Error("no such function")));
    expect(errorGroup("t", text("ann"))).toBe(errorGroup("t", text("bob")));
  });

  test("a reason without words is told by its code", () => {
    const refused = Object.assign(new AggregateError([], ""), { code: "ECONNREFUSED" });
    expect(describeError(drizzleError("select 1", [], refused))).toBe("Error: ECONNREFUSED (Failed query: select 1)");
  });

  test("without a reason the error says what it says", () => {
    expect(describeError(drizzleError("select $1", [5]))).toBe("Error: Failed query: select $1\nparams: 5");
  });

  test("an error that has a query and says something of its own keeps its words", () => {
    const own = Object.assign(new Error("too slow", { cause: new Error("time-out") }), { query: "q", params: [] });
    expect(describeError(own)).toBe("Error: too slow (time-out)");
  });
});
