import { fileURLToPath } from "node:url";
import { type NodeProcess, spawnNode } from "../../harness/spawn-node.ts";

export interface ReaderConfig {
  url: string;
  stream: string;
  ordered: boolean;
  takeOverAfterMs: number;
}

/** Starts a subscriber in a process of its own; a line to it stops it, unless poison ends it. */
export async function redisReader(config: ReaderConfig, kind: "reader" | "poisoned" = "reader"): Promise<NodeProcess> {
  const file = fileURLToPath(new URL(`redis-${kind}-child.ts`, import.meta.url));
  const child = spawnNode(file, [JSON.stringify(config)]);
  await child.waitForLine("ready");
  return child;
}
