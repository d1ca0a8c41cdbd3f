/** JSON values that careless code changes on the way: names that mean something to JavaScript, BSON or a database. */
export const HOSTILE_VALUES: Readonly<Record<string, unknown>> = {
  "names of every object": Object.fromEntries(
    ["constructor", "toString", "valueOf", "hasOwnProperty", "isPrototypeOf", "__defineGetter__", "toJSON"].map(
      (name) => [name, [1, [name], { [name]: [] }]],
    ),
  ),
  "the name of the prototype": JSON.parse('{"__proto__":{"admin":true},"a":{"__proto__":[1,"x"]}}') as unknown,
  "a prototype that is no object": JSON.parse('{"__proto__":"text","n":1}') as unknown,
  "names of BSON": {
    _bsontype: "ObjectId",
    $date: "2026-01-01",
    $oid: "0".repeat(24),
    $numberLong: "1",
    $ref: "c",
    $id: 1,
  },
  "names with dots and dollars": { "a.b": 1, "": { "": [] }, $set: { x: 1 }, "x.$": 2, ".": [3] },
  "names that are numbers": { 2: "b", 1: "a", x: "c", "-1": "d", "01": "e" },
  "lone surrogates": { text: "\ud800", "\udc00": ["a\udfffb", "\ud83d\ud83d\ude00"] },
  "NUL and other controls": { text: "a\0b\u0001\u001f\u007f\u2028\ufeff", "n\0": ["\0"] },
  "numbers at the edge": [
    5e-324, 1.797_693_134_862_315_7e308, 9_007_199_254_740_991, -9_007_199_254_740_991, 2_147_483_648, -2_147_483_649,
    1e21, 0.1, -0.5,
  ],
  "deep nesting": nested(900),
  "words of other formats": ["undefined", "NaN", "null", "true", "\\x00", "{}", "[]", "\\N", "\\.", '"'],
  "empty values": [[], {}, "", null, [[]], [{}], false, 0],
  "a text alone": "\ud83d",
};

function nested(depth: number): unknown {
  let value: unknown = "the bottom";
  for (let i = 0; i < depth; i++) value = i % 2 === 0 ? [value] : { in: value };
  return value;
}
