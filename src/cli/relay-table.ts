import type { RelayInfo } from "../core/contracts.ts";
import { processesOf } from "../core/live-processes.ts";
import { formatTable } from "./format-table.ts";
import { formatMs } from "./format-values.ts";

export function relayTable(relays: readonly RelayInfo[]): string {
  return formatTable(relays, [
    { title: "relay", value: ({ name }) => name },
    { title: "state", value: (relay) => (relay.paused ? "paused" : processesOf(relay) > 0 ? "running" : "no process") },
    { title: "processes", align: "right", value: processesOf },
    {
      title: "pending",
      align: "right",
      value: ({ pending, pendingEstimated }) => `${pendingEstimated ? "~" : ""}${pending.toLocaleString("en-US")}`,
    },
    { title: "oldest", align: "right", value: ({ oldestPendingAgeMs: age }) => (age === null ? null : formatMs(age)) },
    { title: "parked", align: "right", value: ({ parked }) => parked },
    { title: "blocked keys", align: "right", value: ({ blockedKeys }) => blockedKeys },
    { title: "dead", align: "right", value: ({ dead }) => dead },
    { title: "published", align: "right", value: ({ published }) => published },
    { title: "streams", value: ({ streams }) => streams?.join(",") ?? "all", max: 40 },
  ]);
}
