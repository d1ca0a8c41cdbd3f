import { describe, expect, it } from "vitest";
import { storedValue } from "../../../../src/stores/mongodb/stored-value.ts";

describe("JSON in a document of MongoDB", () => {
  it.each(['{"a":[1,"ü",null]}', "5", '"text"', '{"a":{"b":[{}]}}', '{"line":"a\\nb"}'])("%s is a value", (json) => {
    expect(storedValue(json)).toEqual({ value: JSON.parse(json), format: undefined });
  });

  it.each([
    ['{"$set":1}'],
    ['{"a.b":1}'],
    ['{"__proto__":1}'],
    // The driver gave arrays under names of Object.prototype back as bytes.
    ['{"hasOwnProperty":[{"a":1}]}'],
    ['{"constructor":[1]}'],
    // BSON has no half of a surrogate pair, JSON no infinite number.
    ['{"a":"\\ud800"}'],
    ['{"\\ud800":1}'],
    ["[1e999]"],
    ["-0"],
  ])("%s stays text: it would come back changed", (json) => {
    expect(storedValue(json)).toEqual({ value: json, format: "json" });
  });

  it("a name that the engine reads as another stays what it was", () => {
    JSON.parse('{"a":1,"\\\\":1}');
    const json = '{"a":1,"\\n":1}';
    const { value, format } = storedValue(json);
    expect(format === "json" ? value : JSON.stringify(value)).toBe(json);
  });
});
