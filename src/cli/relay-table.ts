import type { Activity, RelayInfo } from "../core/contracts.ts";
import { processesOf } from "../core/live-processes.ts";
import { formatTable } from "./format-table.ts";
import { formatMs, formatRate } from "./format-values.ts";

/** With what the relays did lately, where it is known. */
export function relayTable(relays: readonly RelayInfo[], activity: readonly Activity[] = []): string {
  const rates = new Map(activity.map(({ relay, perSecond }) => [relay, perSecond]));
  const rateOf = ({ name }: RelayInfo): string | null => {
    const rate = rates.get(name);
    return rate === undefined ? null : formatRate(rate);
  };
  return formatTable(relays, [
    { title: "relay", value: ({ name }) => name },
    { title: "state", value: (relay) => (relay.paused ? "paused" : processesOf(relay) > 0 ? "running" : "no process") },
    { title: "processes", align: "right", value: processesOf },
    { title: "rate", align: "right", value: rateOf },
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
    { title: "streams", value: ({ streams }) => streams?.join(",") ?? "all", max: 30 },
  ]);
}
