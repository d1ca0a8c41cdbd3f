import type { Story, StoryDelivery, StoryMessage, StoryPlace, StoryReceipt } from "../admin/index.ts";
import { printable } from "../core/printable.ts";
import { formatMs, formatTime, plural } from "./format-values.ts";

/** Whether any store knows of the message. */
export function isKnown({ message: { places, receipts, caused } }: Story): boolean {
  return places.length > 0 || receipts.length > 0 || caused.length > 0;
}

/** A story as a tree of text: each message, below it what happened to it, and what came of it. */
export function storyText(story: Story): string {
  const { message, causes, count, cut, unreachable } = story;
  const lines = causes.map((cause) => `because of ${titleOf(cause)}`);
  if (isKnown(story)) lines.push(...linesOf(message, "", ""));
  else lines.push(`No store that was asked knows ${printable(message.id)}.`);
  if (cut) lines.push("", `There is more: only the first ${plural(count, "message")} are shown, see --most.`);
  for (const { store, error } of unreachable) lines.push("", `Could not ask ${printable(store)}: ${printable(error)}`);
  return `${lines.join("\n")}\n`;
}

function titleOf({ id, places: [place] }: Pick<StoryMessage, "id" | "places">): string {
  if (place === undefined) return `${printable(id)}, which is in no store`;
  const key = place.key === null ? "" : `, key ${short(place.key)}`;
  const where = `in ${printable(place.store)}, stream ${short(place.stream)}${key}`;
  return `${short(place.type)} ${printable(id)} ${where}, enqueued ${formatTime(place.createdAt)}`;
}

/** `first` stands before the first line, `rest` before all others. */
function linesOf(message: StoryMessage, first: string, rest: string): string[] {
  const { places, receipts, caused } = message;
  const bar = caused.length > 0 ? "│ " : "  ";
  const happened = [
    ...places.flatMap((place, i) => placeLines(place, i > 0)),
    ...receipts.map((receipt) => receiptLine(receipt, places[0])),
  ];
  return [
    `${first}${titleOf(message)}`,
    ...happened.map((line) => `${rest}${bar}${line}`),
    ...caused.flatMap((one, i) => {
      const isLast = i === caused.length - 1;
      return linesOf(one, `${rest}${isLast ? "└─" : "├─"} `, `${rest}${isLast ? "   " : "│  "}`);
    }),
  ];
}

function placeLines(place: StoryPlace, isCopy: boolean): string[] {
  const copy = isCopy
    ? [`stored in ${printable(place.store)}, stream ${short(place.stream)}, ${formatTime(place.createdAt)}`]
    : [];
  return [...copy, ...place.deliveries.flatMap((delivery) => deliveryLines(delivery, place))];
}

function deliveryLines(delivery: StoryDelivery, { createdAt }: StoryPlace): string[] {
  const { relay, status, attempts, lastError, errors, publishedAt, deliverAt } = delivery;
  const who = relay === null ? "no relay" : `relay ${short(relay)}`;
  const when =
    publishedAt !== null
      ? ` after ${formatMs(publishedAt.getTime() - createdAt.getTime())}`
      : deliverAt !== null
        ? ` for ${formatTime(deliverAt)}`
        : "";
  const tries = attempts === 0 ? "" : `, ${plural(attempts, "attempt")}`;
  const failed = errors.map(({ at, error }) => `  ${formatTime(new Date(at))} ${short(error, 120)}`);
  const last = errors.length === 0 && lastError !== null ? [`  last error: ${short(lastError, 120)}`] : [];
  return [`${who}: ${status}${when}${tries}`, ...failed, ...last];
}

function receiptLine(receipt: StoryReceipt, place: StoryPlace | undefined): string {
  const { consumer, store, status, receivedAt, processedAt, attempts, lastError } = receipt;
  const at = processedAt ?? receivedAt;
  const took =
    at === null || place === undefined
      ? at === null
        ? ""
        : ` ${formatTime(at)}`
      : ` after ${formatMs(at.getTime() - place.createdAt.getTime())}`;
  const error = status === "failed" && lastError !== null ? `: ${short(lastError, 120)}` : "";
  const tries = attempts === 0 ? "" : `, ${plural(attempts, "attempt")}`;
  return `consumer ${short(consumer)} in ${printable(store)}: ${status}${took}${tries}${error}`;
}

function short(text: string, max = 60): string {
  const shown = printable(text);
  return shown.length > max ? `${shown.slice(0, max - 1).toWellFormed()}…` : shown;
}
