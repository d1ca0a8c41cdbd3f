import { fileURLToPath } from "node:url";
import { type NodeProcess, spawnNode } from "../../harness/spawn-node.ts";
import type { Numbered } from "./outbox-database.ts";

export interface ChildConfig {
  /** postgres://… or mongodb://… */
  url: string;
  source?: "polling" | "stream";
  /** With PostgreSQL: standbys keep the slot too. */
  failoverSlot?: boolean;
  /** Default "orders". */
  name?: string;
  leaseMs?: number;
  batchSize?: number;
  /**
   * `print`: publish by printing. `ask`: print `asked`, wait for a line, then publish. `die-on-poison`: abort the process
   * at a poisonous message. `die-on-retry`: the same at each attempt but the first, which fails; in batches as they come. `out`: the broker refuses everything. `hang`: never answer. `block`: keep the event loop busy once,
   * for `blockMs` or until there is a file `blockUntil`.
   */
  mode?: "print" | "ask" | "die-on-poison" | "die-on-retry" | "out" | "hang" | "block";
  /** At most so long between attempts, instead of a second and more. */
  backoffMs?: number;
  /** Messages of keys that begin with this fail each time, in mode `die-on-retry`. */
  failing?: string;
  delayMs?: number;
  blockMs?: number;
  blockUntil?: string;
  stopDeadlineMs?: number;
}

export interface ChildSent extends Numbered {
  id: string;
  position: string;
  at: number;
}

export interface RelayProcess extends NodeProcess {
  /** What it published so far, in order. */
  sent(word?: "sent" | "asked"): ChildSent[];
  /** The values of its events of a type. */
  events(type: string): Record<string, unknown>[];
}

/** Starts a relay in a process of its own. Wait for its line `ready`. */
export function relayProcess(config: ChildConfig, env: Record<string, string> = {}): RelayProcess {
  const child = spawnNode(fileURLToPath(new URL("relay-child.ts", import.meta.url)), [JSON.stringify(config)], { env });
  const values = (word: string): unknown[] =>
    child.stdout.filter((line) => line.startsWith(`${word} `)).map((line) => JSON.parse(line.slice(word.length + 1)));
  return Object.defineProperties(child, {
    sent: { value: (word: "sent" | "asked" = "sent") => values(word) as ChildSent[] },
    events: {
      value: (type: string) => (values("event") as Record<string, unknown>[]).filter((event) => event["type"] === type),
    },
  }) as RelayProcess;
}
