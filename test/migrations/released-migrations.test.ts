import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import { MIGRATIONS } from "../../src/stores/postgres/migrations/index.ts";
import type { Migration } from "../../src/stores/postgres/migrations/migration.ts";

/** Databases out there were made by exactly this text: what has to change is a migration of its own. */
const RELEASED: Readonly<Record<string, string>> = {
  "1 init": "37e709591e16b05af0e97b75c1e85df2167dcec356415e3c39fb1177208567c3",
  "2 fence_token": "6a52969ba92c9b4f11290fab63a1e4b8e24b7e01909af9bea587d205afc5f1a0",
  "3 cheaper_insert": "653d1fae062c4cf3f2dad6d3eaa820a2a7daf247e122f5337632b6164caa51c7",
  "4 one_look_up_index": "b5dd333b0679a19f4c5323c1a2562c174c60936347776135dec7cf683ba343c2",
  "5 dead_letter_indexes": "fc58c8c141bbc4f3e4582744c7d0e8355554839780ef689ea50ce01e67a50f07",
  "6 news_by_index": "c11b8aa55bf84c0afae12bf70b1f18b6396e43796188f9130ddf114b16ad10bd",
  "7 what_a_role_may_write": "4cd87eb9d76ae15623d9c9364a2a349e39779cf443788a8f9914de712c84c95f",
  "8 known_writes": "0b10abec4aa2f4e7d941104f37793b8a64317e177bb6997fb33fd222a27b4d2a",
  "9 samples_and_archive": "50658b88088b1871800c366820a004837c3d05e332cc200c0d30c3b92a66d068",
  "10 groups_edits_changes": "8c9055aa72479598e8c8d9fc054777b7010825c2bf4abf82754090d7573c75d8",
  "11 wal_source": "5a587a086b2efbac83a49a19b3582e619acb0aab53f58909ef8cb1536994e0af",
  "12 enqueue_from_sql": "87f5f5867ee155ccebd8a5bf3bf7a6ddfdb03247ba6965bdc3ca79b370d1497e",
  "13 what_a_process_can_hold": "a077b0e845b17afc2f45b43cce37337e407cd32296ba20d34f6f9b5485d66c8b",
  "14 look_ups_by_place": "e210e62997b8fa6ee34f5f71ac8854f2b241e31ff84ad79f00515dbfd41e004d",
  "15 deaths_by_message": "0eda6a7633390dcfd65251410863b12610e28587342e71dd66b02add6a62804c",
};

it.each(Object.entries(RELEASED))("migration %s is as it was released", (name, hash) => {
  const found = MIGRATIONS.find((migration) => `${migration.version} ${migration.name}` === name);
  expect(createHash("sha256").update(textOf(found!)).digest("hex")).toBe(hash);
});

function textOf(migration: Migration): string {
  return "sql" in migration ? migration.sql : JSON.stringify(migration.pieces);
}
