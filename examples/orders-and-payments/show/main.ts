import { writeFileSync } from "node:fs";
import { formatTable } from "../../../src/cli/format-table.ts";
import { ServerUnavailableError } from "../../../test/harness/index.ts";
import { showBacklog, type BacklogResult } from "./backlog-show.ts";
import { showOptions, type ShowOptions } from "./options.ts";
import { type OrdersResult, showOrders } from "./orders-show.ts";

const startedAt = performance.now();

function say(text: string): void {
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  process.stdout.write(`${seconds.padStart(6)} s  ${text}\n`);
}

function readOptions(): ShowOptions | undefined {
  try {
    return showOptions(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n--help lists the options.\n`);
    process.exit(2);
  }
}

function table(result: OrdersResult | BacklogResult): string {
  const figures = Object.entries(result).filter(([, value]) => typeof value !== "object");
  return formatTable(figures, [
    { title: "what", value: ([name]) => words(name) },
    { title: "how much", align: "right", value: ([, value]) => String(value) },
  ]);
}

function words(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function print(result: OrdersResult | BacklogResult): void {
  process.stdout.write(`\n${table(result)}`);
  if ("kills" in result && result.chaos) {
    const kills = Object.entries(result.kills).map(([name, count]) => `${name} ${count}`);
    process.stdout.write(`killed: ${kills.join(", ")}\n`);
  }
  for (const crash of result.crashes) process.stdout.write(`${crash}\n`);
  process.stdout.write(result.passed ? "\nAll is as it should be.\n" : "\nSomething is wrong.\n");
}

/** The exit code: 0 all is well, 1 something is wrong, 3 a server is not there. */
async function show(options: ShowOptions): Promise<number> {
  try {
    const result = options.backlog > 0 ? await showBacklog(options, say) : await showOrders(options, say);
    if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(result, undefined, 2)}\n`);
    print(result);
    return result.passed ? 0 : 1;
  } catch (error) {
    if (!(error instanceof ServerUnavailableError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 3;
  }
}

const options = readOptions();
if (options !== undefined) process.exit(await show(options));
