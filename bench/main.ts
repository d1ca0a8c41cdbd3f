import { writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { createContext } from "./lib/context.ts";
import { Report } from "./lib/report.ts";
import { withClient } from "./lib/with-client.ts";
import { SECTIONS } from "./sections/index.ts";
import type { SectionName } from "./sections/index.ts";

const HELP = `npm run bench [-- options]

  --quick        short rounds: the run ends within 50 s; brokers only if they are named
  --only a,b     only these sections
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
}

function parseOptions(): Options | undefined {
  const { values } = parseArgs({
    options: {
      quick: { type: "boolean", default: false },
      only: { type: "string" },
      json: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) return undefined;
  const all = Object.keys(SECTIONS) as SectionName[];
  const only = values.only?.split(",").map((name) => name.trim());
  const unknown = only?.find((name) => !all.includes(name as SectionName));
  if (unknown !== undefined) throw new Error(`there is no section "${unknown}"; there are ${all.join(", ")}`);
  const runsAnyway = (name: SectionName): boolean =>
    SECTIONS[name].byDefault === "full" ? !values.quick : SECTIONS[name].byDefault === true;
  const chosen = all.filter((name) => (only === undefined ? runsAnyway(name) : only.includes(name)));
  // npm runs this in bench/; a relative path means the folder it was called from.
  const json = values.json === undefined ? undefined : resolve(process.env["INIT_CWD"] ?? ".", values.json);
  return { quick: values.quick, only: chosen, json };
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

async function main({ quick, only, json }: Options): Promise<void> {
  const report = new Report();
  await using context = await createContext(report, quick);
  const where = await environment(context.server.url);
  console.log(
    `PostgreSQL ${where["postgres"]}, fsync ${where["fsync"]}; Node ${where["node"]}; ${where["cpus"]} CPUs\n`,
  );
  for (const name of only) {
    await SECTIONS[name].run(context);
    await context.clear();
  }
  const seconds = Math.round(performance.now() / 1000);
  console.log(`\nFigures (rates: best of the rounds; payloads of 250 bytes; ${seconds} s in all)`);
  report.print();
  if (json === undefined) return;
  const file = { ...report.toJSON(), environment: { ...where, quick, sections: only, seconds } };
  writeFileSync(json, `${JSON.stringify(file, undefined, 2)}\n`);
  console.log(`\nwritten to ${json}`);
}

try {
  const options = parseOptions();
  if (options === undefined) console.log(HELP);
  else await main(options);
} catch (error) {
  console.error(error instanceof Error ? (error.stack ?? error.message) : error);
  process.exitCode = 1;
}
