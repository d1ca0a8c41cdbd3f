import { writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { COMPARISONS } from "./against/index.ts";
import { checkOutRef, resolveRef } from "./against/ref-checkout.ts";
import { sidesOf } from "./against/sides.ts";
import { createContext } from "./lib/context.ts";
import { OptionError } from "./lib/option-error.ts";
import { Report } from "./lib/report.ts";
import { withClient } from "./lib/with-client.ts";
import { SECTIONS } from "./sections/index.ts";
import type { SectionName } from "./sections/index.ts";

const HELP = `npm run bench [-- options]

  --quick        short rounds: the run ends within 50 s; brokers only if they are named
  --only a,b     only these sections
  --against REF  this working tree against a commit, side by side in one run: drain, enqueue, latency, inbox, brokers,
                 mongodb; the ratios against_… are this/REF, above 1: this is better
  --json FILE    write figures and ratios to a file as well
  --help         this text

Sections:
${Object.entries(SECTIONS)
  .map(([name, { summary }]) => `  ${name.padEnd(13)}  ${summary}`)
  .join("\n")}
`;

interface Options {
  quick: boolean;
  only: SectionName[];
  json: string | undefined;
  against: string | undefined;
}

function parseOptions(): Options | undefined {
  const { values } = parseArgs({
    options: {
      quick: { type: "boolean", default: false },
      only: { type: "string" },
      json: { type: "string" },
      against: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) return undefined;
  const comparing = values.against !== undefined;
  if (values.against !== undefined) resolveRef(values.against);
  const all = (Object.keys(SECTIONS) as SectionName[]).filter((name) => !comparing || COMPARISONS[name] !== undefined);
  const only = values.only?.split(",").map((name) => name.trim());
  const unknown = only?.find((name) => !all.includes(name as SectionName));
  if (unknown !== undefined)
    throw new OptionError(
      `there is no section "${unknown}"${comparing ? " to compare" : ""}; there are ${all.join(", ")}`,
    );
  const runsAnyway = (name: SectionName): boolean =>
    SECTIONS[name].byDefault === "full" ? !values.quick : SECTIONS[name].byDefault === true;
  const chosen = all.filter((name) => (only === undefined ? runsAnyway(name) : only.includes(name)));
  // npm runs this in bench/; a relative path means the folder it was called from.
  const json = values.json === undefined ? undefined : resolve(process.env["INIT_CWD"] ?? ".", values.json);
  return { quick: values.quick, only: chosen, json, against: values.against };
}

async function environment(url: string): Promise<Record<string, string | number>> {
  const postgres = await withClient(url, async (client) => {
    const { rows } = await client.query<{ v: string; fsync: string; sync: string }>(
      `select current_setting('server_version') as v, current_setting('fsync') as fsync,
         current_setting('synchronous_commit') as sync`,
    );
    return { postgres: rows[0]?.v ?? "", fsync: rows[0]?.fsync ?? "", synchronous_commit: rows[0]?.sync ?? "" };
  });
  const [cpu] = cpus();
  return {
    node: process.version,
    ...postgres,
    platform: `${process.platform}-${process.arch}`,
    cpus: cpus().length,
    cpu: cpu?.model ?? "",
    memory_gib: Math.round(totalmem() / 2 ** 30),
  };
}

async function main({ quick, only, json, against }: Options): Promise<void> {
  using ref = against === undefined ? undefined : checkOutRef(against);
  const report = new Report(ref === undefined ? undefined : `of the medians, this/${ref.ref}; above 1: this is better`);
  await using context = await createContext(report, quick);
  const where = await environment(context.server.url);
  console.log(
    `PostgreSQL ${where["postgres"]}, fsync ${where["fsync"]}; Node ${where["node"]}; ${where["cpus"]} CPUs\n`,
  );
  const sides = ref === undefined ? undefined : sidesOf(context, ref);
  for (const name of only) {
    await (sides === undefined ? SECTIONS[name].run(context) : COMPARISONS[name]?.(sides));
    await context.clear();
  }
  const seconds = Math.round(performance.now() / 1000);
  const kind = ref === undefined ? "rates: best" : "medians";
  console.log(`\nFigures (${kind} of the rounds; payloads of 250 bytes; ${seconds} s in all)`);
  report.print();
  if (json === undefined) return;
  const file = {
    ...report.toJSON(),
    environment: { ...where, ...(ref && { against: ref.commit }), quick, sections: only, seconds },
  };
  writeFileSync(json, `${JSON.stringify(file, undefined, 2)}\n`);
  console.log(`\nwritten to ${json}`);
}

try {
  const options = parseOptions();
  if (options === undefined) console.log(HELP);
  else await main(options);
} catch (error) {
  const isOption =
    error instanceof OptionError || String((error as { code?: unknown })?.code).startsWith("ERR_PARSE_ARGS");
  if (isOption) console.error((error as Error).message);
  else console.error(error instanceof Error ? (error.stack ?? error.message) : error);
  process.exitCode = 1;
}
