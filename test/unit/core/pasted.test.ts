import { execFileSync } from "node:child_process";
import { expect, it } from "vitest";
import { deadLetterCommands, shellWord, sqlText } from "../../../src/core/pasted.ts";

it.each(["orders", "a b", "it's", "$(id)", "`id`", "a;b", 'say "no"', "back\\slash", "", "two\nlines", "*"])(
  "gives a shell one word for %j",
  (text) => {
    expect(execFileSync("/bin/sh", ["-c", `printf %s ${shellWord(text)}`]).toString()).toBe(text);
  },
);

it("leaves plain words alone", () => {
  const id = "01890a5d-ac96-774b-bcce-b302099a8057";
  expect(deadLetterCommands(id, "to-rabbit")).toBe(
    `txbox dead requeue ${id} --relay to-rabbit, or txbox dead discard ${id} --relay to-rabbit`,
  );
  expect(deadLetterCommands("a b", "it's")).toContain(`requeue 'a b' --relay 'it'\\''s',`);
});

it("doubles quotes in SQL", () => {
  expect(sqlText("it's")).toBe("'it''s'");
});
