import type { Maintenance } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import { uuidv7 } from "../../core/uuid.ts";
import { fillGroups } from "./dead-groups.ts";
import { writeLetters } from "./dead-letters.ts";
import type { Tables } from "./mongodb-names.ts";

const LANE_NUMBERS = Array.from({ length: LANES }, (_, lane) => lane);
const BATCH = 100;
/** How many letters of older relays get their group in one run. */
const GROUPED = 50_000;

/**
 * The server deletes documents that are done and past their time. This finds documents that no relay would ever see.
 */
export function createMaintenance({ tables }: { tables: Tables }): Maintenance {
  return {
    async run() {
      for (const waits of ["ready", "parked", "later"] as const) await buryLaneless(tables, waits);
      await fillGroups(tables, GROUPED);
      return { rotated: false, droppedSegments: [], heldBackBy: [] };
    },
  };
}

/** A document whose lane was edited away belongs to no owner: it is declared dead, with the reason. */
async function buryLaneless(tables: Tables, waits: string): Promise<void> {
  const lost = await tables.outbox.find({ waits, lane: { $nin: LANE_NUMBERS } }, { limit: BATCH });
  for (const { _id, lane, relay } of lost) {
    const at = new Date();
    const error = `The document is no message: lane is ${JSON.stringify(lane) ?? "missing"}`;
    const dead = { status: "dead", waits: "dying", last_error: error, errors: [{ at, error }], attempts: 0 };
    const death = { death: uuidv7(), died_at: at, blocks: false };
    const died = await tables.outbox.findOneAndUpdate(
      { _id, waits, lane: { $nin: LANE_NUMBERS } },
      { $set: { ...dead, ...death } },
      { returnDocument: "after" },
    );
    if (died !== null) await writeLetters(tables, typeof relay === "string" ? relay : "", [died]);
  }
}
