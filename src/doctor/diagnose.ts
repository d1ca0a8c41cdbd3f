import type { HealthCheck, Severity, Store, Symptom } from "../core/contracts.ts";
import { systemClock } from "../core/clock.ts";
import { describeError, errorCode, TxboxError } from "../core/errors.ts";
import { nearest, rejectUnknownOptions, requireInteger, requireTexts } from "../core/options.ts";
import { commonChecks } from "./common-checks.ts";

/** A finding of the doctor, by the name of the check that made it. */
export interface Diagnosis extends Symptom {
  check: string;
}

export interface DiagnoseOptions {
  /** How long each check may take. Default 5000. */
  timeoutMs?: number;
  /** Only these checks, by name. */
  only?: readonly string[];
}

const DEFAULT_TIMEOUT_MS = 5000;
const RANK: readonly Severity[] = ["error", "warning", "info"];

/**
 * Looks at everything that is known to go wrong with a store, and changes nothing. A check that fails or takes too long is
 * a finding of its own and hides no other. The worst come first.
 */
export async function diagnose(store: Store, options: DiagnoseOptions = {}): Promise<Diagnosis[]> {
  rejectUnknownOptions("diagnose", options, ["timeoutMs", "only"]);
  const { timeoutMs = DEFAULT_TIMEOUT_MS, only } = options;
  requireInteger("diagnose", "timeoutMs", timeoutMs, 1);
  requireKnown(store, only);
  const found: Diagnosis[] = [];
  const reach = await lookAtSchema(store, timeoutMs);
  found.push(...reach.found);
  for (const check of checksOf(store)) {
    if (reach.has === "nothing" || (reach.has === "server" && check.needs === "tables")) continue;
    if (only !== undefined && !only.includes(check.name)) continue;
    found.push(...(await carriedOut(check, timeoutMs)));
  }
  const wanted =
    only === undefined ? found : found.filter(({ check }) => reach.has === "nothing" || only.includes(check));
  return wanted.toSorted((a, b) => RANK.indexOf(a.severity) - RANK.indexOf(b.severity));
}

/** A misspelt check must not look like one that found nothing. */
function requireKnown(store: Store, only: readonly string[] | undefined): void {
  if (only === undefined) return;
  requireTexts("diagnose", "only", only);
  const names = checkList(store).map(({ name }) => name);
  const unknown = only.find((name) => !names.includes(name));
  if (unknown === undefined) return;
  const near = nearest(unknown, names);
  throw new TxboxError("invalid_option", `diagnose: there is no check "${unknown}"`, {
    field: "only",
    fix: near === undefined ? `There are ${names.join(", ")}` : `Did you mean "${near}"?`,
  });
}

function checksOf(store: Store): readonly HealthCheck[] {
  return [...commonChecks(store), ...(store.checks ?? [])];
}

/** Name and subject of everything that `diagnose` looks at, in its order. */
export function checkList(store: Store): readonly Pick<HealthCheck, "name" | "looksAt">[] {
  return [
    { name: "connection", looksAt: "whether the database can be reached" },
    ...(store.name === "postgres"
      ? [{ name: "search_path", looksAt: "whether PostgreSQL's own functions are found first" }]
      : []),
    { name: "schema", looksAt: "whether the tables are there, and of this version" },
    ...checksOf(store),
  ];
}

interface Reach {
  has: "nothing" | "server" | "tables";
  found: Diagnosis[];
}

async function lookAtSchema(store: Store, timeoutMs: number): Promise<Reach> {
  try {
    await withLimit(store.migrator.check(), timeoutMs);
    return { has: "tables", found: [] };
  } catch (error) {
    const finding = describeError(error);
    const code = errorCode(error) ?? "";
    if (code.startsWith("schema_")) {
      const fix = code === "schema_too_new" ? "Upgrade the txbox package of this process" : "Run `txbox migrate`";
      const consequence = "Relays and inboxes of this version refuse to start";
      return { has: "server", found: [{ check: "schema", severity: "error", finding, consequence, fix }] };
    }
    if (error instanceof TxboxError && code === "unsafe_search_path") {
      const consequence = "Relays, inboxes and commands refuse to work";
      const fix = error.fix ?? "Correct search_path";
      return { has: "nothing", found: [{ check: "search_path", severity: "error", finding, consequence, fix }] };
    }
    const classified = store.classify(error);
    if (error instanceof Late || classified === "unavailable" || classified === undefined) {
      const consequence = "Nothing is published and nothing is received";
      const fix = "Check that the server runs, and its URL, network and login";
      return { has: "nothing", found: [{ check: "connection", severity: "error", finding, consequence, fix }] };
    }
    return { has: "server", found: [notCarriedOut("schema", error)] };
  }
}

async function carriedOut(check: HealthCheck, timeoutMs: number): Promise<Diagnosis[]> {
  try {
    const symptoms = await withLimit((async () => check.run())(), timeoutMs);
    return symptoms.map((symptom) => ({ check: check.name, ...symptom }));
  } catch (error) {
    return [notCarriedOut(check.name, error)];
  }
}

function notCarriedOut(check: string, error: unknown): Diagnosis {
  return {
    check,
    severity: "warning",
    finding: `This could not be looked at: ${describeError(error, 300)}`,
    consequence: "What it would have found is not known",
    fix: "Give the role the rights to look, or run the doctor with another role",
  };
}

class Late extends Error {}

async function withLimit<T>(answer: Promise<T>, ms: number): Promise<T> {
  const over = new AbortController();
  answer.catch(() => undefined);
  const late = systemClock.sleep(ms, over.signal).then(() => {
    throw new Late(`There was no answer within ${ms} ms`);
  });
  late.catch(() => undefined);
  try {
    return await Promise.race([answer, late]);
  } finally {
    over.abort();
  }
}
