import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of these applications. */
export const stacks: string = fileURLToPath(new URL("../..", import.meta.url));

/** A command of an installed package. */
export function bin(name: string): string {
  return join(stacks, "node_modules", ".bin", name);
}

export interface NodeVersion {
  readonly version: string;
  readonly path: string;
}

export const NODE_22: NodeVersion = {
  version: "Node 22",
  path: join(stacks, "node_modules", "node-22", "bin", "node"),
};
/** That which runs the tests. */
export const NODE_24: NodeVersion = { version: "Node 24", path: process.execPath };
