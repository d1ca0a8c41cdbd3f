import { setTimeout as sleep } from "node:timers/promises";
import { errorCode } from "../../src/core/errors.ts";
import { openPool, soakStore } from "./world.ts";

const [url = "", everyMs = "300"] = process.argv.slice(2);
const { maintenance } = soakStore(openPool(url, 3));
process.stdout.write("started\n");

for (;;) {
  try {
    const { rotated, droppedSegments } = await maintenance.run();
    if (rotated || droppedSegments.length > 0)
      process.stdout.write(`done ${Number(rotated)} ${droppedSegments.length}\n`);
  } catch (error) {
    process.stdout.write(`error ${errorCode(error) ?? "-"} ${String(error)}\n`);
  }
  await sleep(Number(everyMs));
}
