import { expect, test } from "vitest";
import { Secrets } from "../../../src/cli/secrets.ts";

test.each([
  ["connect to amqp://u:p@h:5672/v failed", "connect to amqp://… failed"],
  ["bad 'postgres://u:a b/c@h/db'", "bad 'postgres://…'"],
  ["postgres:u:secret@h", "postgres:…"],
  ["jdbc:postgresql://h/d?password=x, no", "jdbc:…, no"],
  ["host=h password='a \\' b' port=1", "host=h password=… port=1"],
  ['{ "password": "x y" }', '{ "password": … }'],
  ["Cannot reach postgres:5432/app: refused", "Cannot reach postgres:5432/app: refused"],
  ["kafka:9092 is away", "kafka:9092 is away"],
  ["Use postgres://…, mongodb://… or pglite:FOLDER", "Use postgres://…, mongodb://… or pglite:FOLDER"],
  ["at file:///a/node_modules/@b/c.js:1:2", "at file:///a/node_modules/@b/c.js:1:2"],
  ["client password must be a string", "client password must be a string"],
])("%s", (text, shown) => {
  expect(new Secrets().hide(text)).toBe(shown);
});

test("what was told is hidden wherever it is, unless it is too short to be found", () => {
  const secrets = new Secrets();
  for (const secret of ["hunter2", "abc", undefined]) secrets.add(secret);
  expect(secrets.hide("tried hunter2 with abc")).toBe("tried … with abc");
});
