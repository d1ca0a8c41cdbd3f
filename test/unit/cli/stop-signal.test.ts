import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { spawnNode } from "../../harness/index.ts";

const stopping = fileURLToPath(new URL("children/stopping.ts", import.meta.url));

test("the first signal asks, the same one passed on is no second one, and a second one ends the process", async () => {
  await using child = spawnNode(stopping);
  await child.waitForLine("ready");
  child.signal("SIGINT");
  child.signal("SIGINT");
  expect(await child.waitForLine("stopping")).toBe("stopping by SIGINT");
  child.signal("SIGINT");
  await sleep(100);
  expect(child.running).toBe(true);
  await sleep(300);
  child.signal("SIGTERM");
  expect(await child.waitForExit()).toEqual({ code: 143, signal: null });
});
