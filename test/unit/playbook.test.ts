import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { captureCli } from "../support/captured-cli.ts";
import { commandLines } from "../support/docs/command-lines.ts";
import { page, root } from "../support/docs/markdown.ts";

const playbook = page("docs/playbook.md");
const RULES = join(root, "ops/prometheus-rules.yaml");
const METRICS = join(root, "docs/metrics.md");

/** All that fits, each once. */
function all(text: string, pattern: RegExp): string[] {
  return [...new Set(Array.from(text.matchAll(pattern), (match) => match[1] ?? ""))].toSorted((a, b) =>
    a < b ? -1 : 1,
  );
}

describe("the playbook", () => {
  test("has every alert, and no other", () => {
    expect(all(playbook.text, /`(Txbox\w+)`/g)).toEqual(all(readFileSync(RULES, "utf8"), /- alert: (\w+)/g));
  });

  test("names metrics that exist", () => {
    const defined = new Set(all(readFileSync(METRICS, "utf8"), /^\| `(\w+)/gm));
    const named = all(playbook.text, /`((?:outbox|inbox|txbox)_\w+)(?:\{[^}]*\})?`/g).filter(
      (name) => name !== "txbox_done",
    );
    expect(named).toContain("outbox_lag_seconds");
    expect(named.filter((name) => !defined.has(name))).toEqual([]);
  });

  test("asks the doctor for checks that exist", async () => {
    const env = { DATABASE_URL: "postgres://127.0.0.1:1/none" };
    const { stdout } = await captureCli(["doctor", "--list", "--json"], { env });
    const { checks } = JSON.parse(stdout) as { checks: { name: string }[] };
    const asked = commandLines(playbook).flatMap(({ argv }) =>
      argv[0] === "doctor" && argv[1] === "--only" ? (argv[2] ?? "").split(",") : [],
    );
    expect(asked).toContain("clock_skew");
    expect(asked.filter((name) => !checks.some((check) => check.name === name))).toEqual([]);
  });

  test("leads from its table to every section, and each section to what to do", () => {
    const sections = playbook.text.split(/^## /m).slice(1);
    const titles = sections.map((section) => section.split("\n")[0] ?? "").filter((title) => title !== "First");
    expect(titles.length).toBeGreaterThanOrEqual(15);
    const table = sections.find((section) => section.startsWith("First\n")) ?? "";
    expect(titles.filter((title) => !table.includes(`[${title}](#`))).toEqual([]);
    const withoutCommand = sections.filter((section) => !/^```(?:sh|sql)$/m.test(section));
    expect(withoutCommand.map((section) => section.split("\n")[0])).toEqual([]);
  });
});
