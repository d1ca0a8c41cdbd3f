import { readFileSync } from "node:fs";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { DIAGNOSIS_METRICS } from "../../../src/observability/prometheus/collect-diagnosis.ts";
import { FIGURES_METRICS, UP_METRICS } from "../../../src/observability/prometheus/figures-metrics.ts";
import type { Definitions } from "../../../src/observability/prometheus/prometheus-client.ts";
import { PROCESS_METRICS } from "../../../src/observability/prometheus/process-metrics.ts";
import { requireCommand, runCommand, serverOrSkip } from "../../harness/index.ts";

const METRICS: Definitions = { ...PROCESS_METRICS, ...FIGURES_METRICS, ...UP_METRICS, ...DIAGNOSIS_METRICS };
const RULES = join(process.cwd(), "ops/prometheus-rules.yaml");
const rules = readFileSync(RULES, "utf8");
const dashboard = JSON.parse(readFileSync("ops/grafana-dashboard.json", "utf8")) as unknown;
const cases = readFileSync("test/unit/ops/prometheus-rules-cases.yaml", "utf8");

/** Names of metrics as Prometheus has them: a histogram has three. */
const SERIES = new Map(
  Object.entries(METRICS).flatMap(([name, definition]) => {
    const names = definition.kind === "histogram" ? ["_bucket", "_sum", "_count"].map((end) => name + end) : [name];
    return names.map((series) => [series, definition] as const);
  }),
);

function textsOf(value: unknown, key: string): string[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) =>
    name === key && typeof inner === "string" ? [inner] : textsOf(inner, key),
  );
}

/** Those of the rules: one line each, but for folded ones. */
const ruleExpressions = Array.from(
  rules.matchAll(/^ {8}expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)/gm),
  ([, folded, plain]) => folded ?? plain ?? "",
);
const expressions = [...ruleExpressions, ...textsOf(dashboard, "expr"), ...textsOf(dashboard, "query")];
const namesIn = (text: string) => text.match(/\b(?:outbox|inbox|txbox)_\w+/g) ?? [];

test("every metric in the rules and the dashboard is one of ours", () => {
  const named = new Set(expressions.flatMap(namesIn));
  expect(ruleExpressions.length).toBe(rules.match(/- alert:/g)?.length);
  expect(named.size).toBeGreaterThan(30);
  expect([...named].filter((name) => !SERIES.has(name))).toEqual([]);
});

test("every label by which they group is one of the metric", () => {
  const wrong = expressions.flatMap((text) =>
    Array.from(text.matchAll(/by \(([\w, ]+)\) \([^)]*?\b((?:outbox|inbox|txbox)_\w+)/g)).flatMap(
      ([, labels = "", metric = ""]) => {
        const known = [...(SERIES.get(metric)?.labels ?? []), "le"];
        return labels.split(", ").filter((label) => !known.includes(label));
      },
    ),
  );
  expect(wrong).toEqual([]);
});

test("every metric is shown by the dashboard, but for those that say the same as another", () => {
  const shown = new Set(textsOf(dashboard, "expr").flatMap(namesIn));
  const left = Object.keys(METRICS).filter((name) => ![...shown].some((one) => one.startsWith(name)));
  expect(left.toSorted()).toEqual([
    "inbox_blocked_keys",
    "inbox_oldest_pending_age_seconds",
    "outbox_oldest_pending_age_seconds",
    "outbox_relay_paused",
    "outbox_stream_open",
    "outbox_wake_up_open",
  ]);
});

test("every metric is in docs/metrics.md, with its labels, and no other", () => {
  const rows = readFileSync("docs/metrics.md", "utf8").matchAll(
    /^\| `((?:outbox|inbox|txbox)_\w+)(?:\{([^}]*)\})?` \|/gm,
  );
  const documented = Object.fromEntries(Array.from(rows, ([, name = "", labels = ""]) => [name, labels]));
  const wanted = Object.entries(METRICS).map(([name, { labels }]) => [name, labels.join(",")]);
  expect(documented).toEqual(Object.fromEntries(wanted));
});

test("every alert is in docs/alerts.md", () => {
  const page = readFileSync("docs/alerts.md", "utf8");
  const alerts = Array.from(rules.matchAll(/- alert: (\w+)/g), ([, name = ""]) => name);
  expect(alerts.filter((name) => !page.includes(`| \`${name}\` |`))).toEqual([]);
});

const promtool = await serverOrSkip("promtool", async () => {
  const command = await requireCommand("promtool", { apt: "prometheus" });
  return { command, stop: () => Promise.resolve() };
});

describe.skipIf(promtool.skipped)("the rules, by promtool", () => {
  test("are valid", async () => {
    const { code, stderr } = await runCommand(promtool.server.command, ["check", "rules", RULES]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  });

  test("fire when they should and are silent when they should", async () => {
    const folder = mkdtempSync(join(tmpdir(), "txbox-rules-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "cases.yaml");
    writeFileSync(file, cases.replace("RULES", RULES));
    const { code, stdout, stderr } = await runCommand(promtool.server.command, ["test", "rules", file]);
    expect(code, stdout + stderr).toBe(0);
  });

  test("each have a case in which they fire", () => {
    const alerts = Array.from(rules.matchAll(/- alert: (\w+)/g), ([, name = ""]) => name);
    const fired = new Set(Array.from(cases.matchAll(/alertname: (\w+)\n\s+exp_alerts:\n/g), ([, name]) => name));
    expect(alerts.filter((name) => !fired.has(name))).toEqual([]);
  });
});
