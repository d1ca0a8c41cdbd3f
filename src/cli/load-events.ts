import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { EventContract } from "../core/event-contract.ts";
import { contractsOf } from "../core/event-map.ts";
import type { CliContext } from "./cli-context.ts";
import { loadModule } from "./load-config.ts";
import { UsageError } from "./usage-error.ts";

const HOW = "Write `export const events = defineEvents({ order_created: { stream, schema } })`";

/** The contracts that a module exports, or those of the configuration. */
export async function loadEvents(context: CliContext, named: string | undefined): Promise<readonly EventContract[]> {
  if (named !== undefined) return ofModule(context, named);
  const { config, file } = await context.loadConfig();
  const contracts = [...(contractsOf("events", config.events)?.values() ?? [])];
  if (contracts.length > 0) return contracts;
  const what = file === undefined ? "There is no configuration, so there are" : `${file} has`;
  const fix = "Give it `events: defineEvents({ … })`, or name the module that exports them";
  throw new UsageError(`${what} no events with schemas. ${fix}`, { command: "contracts" });
}

async function ofModule(context: CliContext, named: string): Promise<readonly EventContract[]> {
  const file = resolve(context.cwd, named);
  if (!existsSync(file)) throw new UsageError(`There is no module ${named}`, { command: "contracts" });
  const module = await loadModule(file, context.configDeadlineMs);
  const found = new Map<string, EventContract>();
  for (const value of new Set(Object.values(module) as unknown[])) {
    for (const contract of contractsIn(value)) {
      if (found.has(contract.type))
        throw new UsageError(`${named} defines ${contract.type} twice. Give each type one contract`);
      found.set(contract.type, contract);
    }
  }
  if (found.size === 0) throw new UsageError(`${named} exports no events with schemas. ${HOW}`);
  return [...found.values()];
}

/** Of whatever a module exports. */
function contractsIn(value: unknown): Iterable<EventContract> {
  if (typeof value !== "object" || value === null || !("contracts" in value)) return [];
  return value.contracts instanceof Map ? (contractsOf("events", value)?.values() ?? []) : [];
}
