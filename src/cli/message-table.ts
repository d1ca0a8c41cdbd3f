import type { MessageInfo } from "../core/contracts.ts";
import { formatTable } from "./format-table.ts";
import { formatTime } from "./format-values.ts";

/** Messages and what became of them, a line for each relay. */
export function messageTable(found: readonly MessageInfo[]): string {
  return formatTable(found, [
    { title: "position", align: "right", value: ({ position }) => position?.toString() },
    { title: "id", value: ({ id }) => id },
    { title: "stream", value: ({ stream }) => stream },
    { title: "type", value: ({ type }) => type },
    { title: "key", value: ({ key }) => key, max: 30 },
    { title: "relay", value: ({ relay }) => relay },
    { title: "status", value: ({ status }) => status },
    { title: "attempts", align: "right", value: ({ attempts }) => attempts },
    { title: "published", value: ({ publishedAt }) => formatTime(publishedAt) },
    { title: "last error", value: ({ lastError }) => lastError, max: 60 },
  ]);
}
