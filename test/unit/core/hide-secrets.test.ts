import { describe, expect, it } from "vitest";
import { hideSecrets } from "../../../src/core/hide-secrets.ts";

const MB = 2 ** 20;

describe("hideSecrets", () => {
  it.each([
    ["connect to postgres://u:p@h/db failed", "connect to postgres://… failed"],
    ["amqp://u:a b/c@d@host:5672, gone", "amqp://…, gone"],
    ["jdbc:postgresql://h/db?password=x", "jdbc:…"],
    ["postgres:5432 refused", "postgres:5432 refused"],
    ["at file:///app/a.ts:1:2", "at file:///app/a.ts:1:2"],
    ["x-file://u:p@h", "x-file://…"],
    ["(see https://h/a).", "(see https://…)."],
    ["redis://u:p@ is no address", "redis://… is no address"],
    ["http://a and http://b", "http://… and http://…"],
    [`${"a".repeat(200)}://u:p@h`, `${"a".repeat(200)}://…`],
    ['{ password: "a b" }', "{ password: … }"],
  ])("%s", (text, shown) => {
    expect(hideSecrets(text)).toBe(shown);
  });

  // In quadratic time each of them would take hours.
  it.each([
    ["letters and dots", "a."],
    ["URLs without a password", "a://b "],
    ["names without a value", "password "],
    ["names with an open quote", "password='\\' "],
    ["colons", "a:"],
    ["slashes", "://"],
    ["URLs of dots", "a://. "],
    ["file URLs", "file://a "],
  ])("is done soon with a megabyte of %s", { timeout: 10_000 }, (_, part) => {
    const text = part.repeat(MB / part.length);
    expect(hideSecrets(text).length).toBeGreaterThan(0);
  });
});
