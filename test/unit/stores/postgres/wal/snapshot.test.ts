import { expect, test } from "vitest";
import { formatLsn, parseLsn } from "../../../../../src/stores/postgres/wal/pgoutput.ts";
import { parseSnapshot } from "../../../../../src/stores/postgres/wal/snapshot.ts";

test.each([
  ["10:10:", 9n, true],
  ["10:10:", 10n, false],
  ["10:15:12,13", 11n, true],
  ["10:15:12,13", 12n, false],
  ["10:15:12,13", 14n, true],
  ["10:15:12,13", 15n, false],
  ["18446744073709551000:18446744073709551010:", 18446744073709550999n, true],
])("snapshot %s and the transaction %s", (text, xid, seen) => {
  expect(parseSnapshot(text).sees(xid)).toBe(seen);
});

test.each(["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF", "1/0"])("place %s of the log", (text) => {
  expect(formatLsn(parseLsn(text))).toBe(text);
});
