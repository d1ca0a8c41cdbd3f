import { setTimeout as sleep } from "node:timers/promises";
import { errorCode } from "../../src/core/errors.ts";
import { stageNamed } from "./stage.ts";

const [stage = "", url = "", everyMs = "300"] = process.argv.slice(2);
const { maintenance } = (await stageNamed(stage)).openStore(url, 3).store;
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
