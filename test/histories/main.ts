import { parseArgs } from "node:util";
import { LaneHistory } from "./lane-history.ts";
import { findFaults } from "./planted-faults.ts";

const HELP = `npm run histories [-- options]

Random histories of the lane engine over a database in memory: lost and late answers, pauses, deaths, operators.

  --steps N      how many steps in all (default 1000000)
  --length N     how many steps a history has (default 2000)
  --seed N       of the first history; the next one has the next seed (default 1)
  --planted      plants known faults in copies of the engine, and tells which of them are found
  --json         the result as JSON
  --help         this text`;

const { values } = parseArgs({
  options: {
    steps: { type: "string", default: "1000000" },
    length: { type: "string", default: "2000" },
    seed: { type: "string", default: "1" },
    planted: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

if (values.help) {
  console.log(HELP);
} else if (values.planted) {
  const found = await findFaults(whole(values.steps));
  for (const { name, failed } of found) console.log(`${failed.length > 0 ? "found" : "NOT FOUND"}: ${name}`);
  process.exitCode = found.every(({ failed }) => failed.length > 0) ? 0 : 1;
} else {
  const [steps, length, first] = [values.steps, values.length, values.seed].map(whole);
  const result = { steps: 0, histories: 0, committed: 0, deliveries: 0, failed: [] as number[] };
  for (let seed = first!; result.steps < steps!; seed++) {
    try {
      const { committed, deliveries } = await new LaneHistory(seed).run(length!);
      result.committed += committed;
      result.deliveries += deliveries;
    } catch (error) {
      result.failed.push(seed);
      console.error(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}`);
    }
    result.steps += length!;
    result.histories++;
    if (result.histories % 100 === 0) console.error(`${result.steps} steps, ${result.failed.length} failed`);
  }
  if (values.json) console.log(JSON.stringify(result));
  else
    console.log(
      `${result.steps} steps, ${result.committed} messages, failed seeds: ${result.failed.join(", ") || "none"}`,
    );
  process.exitCode = result.failed.length > 0 ? 1 : 0;
}

function whole(text: string): number {
  const number = Number(text);
  if (Number.isInteger(number) && number > 0) return number;
  console.error(`"${text}" is no whole number above 0`);
  process.exit(2);
}
