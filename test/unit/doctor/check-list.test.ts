import { MongoClient } from "mongodb";
import pg from "pg";
import { expect, test } from "vitest";
import { checkList } from "../../../src/doctor/diagnose.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { page } from "../../support/docs/markdown.ts";

test("docs/doctor.md has every check, and nothing else", () => {
  const postgres = checkList(createPostgresStore({ client: new pg.Pool() }));
  const mongodb = checkList(createMongoStore({ client: new MongoClient("mongodb://127.0.0.1:1") }));
  const names = new Set([...postgres, ...mongodb].map(({ name }) => name));
  const section = page("docs/doctor.md").text.split("\n## Checks\n")[1] ?? "";
  const documented = Array.from(section.matchAll(/^\| `(\w+)` \|/gm), (match) => match[1] ?? "");
  expect(documented.toSorted()).toEqual([...names].sort());
  for (const list of [postgres, mongodb]) expect(new Set(list.map(({ name }) => name)).size).toBe(list.length);
});
