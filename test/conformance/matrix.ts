import {
  missingFeatures,
  publisherConformance,
  storeConformance,
  subscriberConformance,
  titleOf,
} from "../../src/testing/index.ts";
import { targets, type SuiteName, type Target, type TargetResults } from "./targets.ts";

interface Case {
  readonly name: string;
  readonly role: string;
  readonly needs?: readonly string[];
}

export const suites: Readonly<Record<SuiteName, readonly Case[]>> = {
  store: storeConformance,
  publisher: publisherConformance,
  subscriber: subscriberConformance,
};

const applicable = ({ suite, features }: Target): Case[] =>
  suites[suite].filter((one) => missingFeatures(one, features).length === 0);

/** What is wrong with the results of a run; nothing, when every case that applies has passed. */
export function problemsOf(target: Target, results: TargetResults["results"] | undefined): string[] {
  if (results === undefined) return [`${target.id} was not run`];
  return applicable(target).flatMap((one) => {
    const result = results[titleOf(one)];
    return result === "passed" ? [] : [`${target.id}: ${titleOf(one)}: ${result ?? "not run"}`];
  });
}

/** A line per adapter, client and server. It says what passes: a run with a failure writes no table. */
export function summaryTable(): string {
  const lines = targets.map((target) => {
    const all = suites[target.suite];
    const passed = applicable(target);
    const missing = new Set(all.flatMap((one) => missingFeatures(one, target.features)));
    const others = all.length - passed.length;
    const why = others === 0 ? "–" : `${others}: no ${[...missing].map(words).join(", no ")}`;
    return `| ${target.label} | ${passed.length} of ${passed.length} | ${why} |`;
  });
  return ["| store or broker | conformance cases passed | not applicable |", "|---|---|---|", ...lines].join("\n");
}

/** Every case, by suite and role, with the features it needs. */
export function caseList(): string {
  return Object.entries(suites)
    .map(([suite, cases]) => {
      const roles = [...new Set(cases.map(({ role }) => role))];
      const sections = roles.map((role) => {
        const mine = cases.filter((one) => one.role === role);
        return [`**${role}** (${mine.length})`, "", ...mine.map(lineOf)].join("\n");
      });
      return [`### ${suite[0]?.toUpperCase()}${suite.slice(1)}: ${cases.length} cases`, ...sections].join("\n\n");
    })
    .join("\n\n");
}

function lineOf({ name, needs = [] }: Case): string {
  return `- ${name}${needs.length === 0 ? "" : ` (${needs.join(", ")})`}`;
}

/** A feature's name as a reader would say it. */
function words(feature: string): string {
  return feature.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

/** Puts generated text between `<!-- name:start -->` and `<!-- name:end -->`. */
export function putBetween(page: string, name: string, text: string): string {
  const [start, end] = [`<!-- ${name}:start -->`, `<!-- ${name}:end -->`];
  const from = page.indexOf(start);
  const to = page.indexOf(end);
  if (from === -1 || to < from) throw new Error(`there is no ${start} … ${end}`);
  return `${page.slice(0, from + start.length)}\n${text}\n${page.slice(to)}`;
}

/** The pages that carry generated parts, by path. */
export const generated: Readonly<Record<string, (page: string) => string>> = {
  "README.md": (page) => putBetween(page, "matrix", `${summaryTable()}\n${anyOther()}`),
  "docs/conformance.md": (page) => putBetween(putBetween(page, "matrix", summaryTable()), "cases", caseList()),
};

function anyOther(): string {
  return "| Any other target | `publishEach(async (message) => …)`, or [write an adapter](docs/writing-an-adapter.md) | |";
}
