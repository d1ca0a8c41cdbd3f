import type { ConsumerView, Cause, Level, RelayView, StoreView, Verdict } from "./page-api.ts";
import { formatMs, plural } from "../core/plain-words.ts";
import { shellWord } from "../core/pasted.ts";

const RANK: readonly Level[] = ["bad", "attention", "unknown", "good"];

/** Of causes of one level, the one that stops most comes first. */
const KINDS = [
  "store",
  "out",
  "alone",
  "still",
  "late",
  "held",
  "dead",
  "blocked",
  "paused",
  "consumer",
  "stream",
  "retention",
] as const;

interface Found extends Cause {
  kind: (typeof KINDS)[number];
}

/** Whether messages leave, in words: the worst first. */
export function verdictOf(stores: readonly StoreView[]): Verdict {
  const causes = stores
    .flatMap((store) =>
      [
        ...storeCauses(store),
        // What is known of a store that is down is old.
        ...(store.down === null ? store.relays.flatMap(relayCauses) : []),
        ...(store.down === null ? store.consumers.flatMap(consumerCauses) : []),
      ].map((cause) => (stores.length > 1 ? inStore(cause, store) : cause)),
    )
    .toSorted((a, b) => RANK.indexOf(a.level) - RANK.indexOf(b.level) || KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind))
    .map(({ kind: _kind, ...cause }): Cause => cause);
  const [worst] = causes;
  if (worst === undefined) {
    const hasRelays = stores.some(({ relays }) => relays.length > 0);
    return { level: hasRelays ? "good" : "unknown", text: calmText(stores), causes };
  }
  const others = causes.filter(({ level }) => level === "bad").length - 1;
  const text =
    others > 0
      ? `${worst.text} And ${plural(others, "more thing")} ${others === 1 ? "needs" : "need"} you.`
      : worst.text;
  return { level: worst.level, text, causes };
}

function inStore(cause: Found, { name }: StoreView): Found {
  return cause.command === null ? cause : { ...cause, command: `${cause.command} --store ${shellWord(name)}` };
}

function calmText(stores: readonly StoreView[]): string {
  const relays = stores.flatMap((store) => store.relays);
  if (relays.length === 0) return "No relay has run yet, so nothing leaves.";
  const lag = Math.max(0, ...relays.map(({ lagMs }) => lagMs ?? 0));
  if (lag > 0) return `All messages leave within ${formatMs(Math.max(lag, 100))}.`;
  return relays.some(({ outPerSecond }) => outPerSecond > 0)
    ? "All messages leave within 0.1 s."
    : "All messages have left. Nothing waits.";
}

function storeCauses({ name, down, unread, relays }: StoreView): Found[] {
  if (down !== null) {
    return [
      {
        kind: "store",
        level: "bad",
        text: `The store ${name} gives no answer.`,
        so: `Nothing is published and nothing is received. ${down.error}`,
        link: query("doctor", { store: name }),
        command: "txbox doctor",
        since: down.since,
      },
    ];
  }
  if (relays.length === 0 && unread.length === 0) return [];
  return unread.map(({ stream, oldestAgeMs }) => ({
    kind: "stream",
    level: "attention",
    text: `No relay reads the stream ${stream}.`,
    so: `Its messages have waited for ${formatMs(oldestAgeMs)}, and go when their retention is over.`,
    link: query("messages", { store: name, stream }),
    command: `txbox relay NAME --streams ${shellWord(stream)}`,
    since: Date.now() - oldestAgeMs,
  }));
}

function relayCauses(relay: RelayView): Found[] {
  const { store, name, state, pending, dead, blockedKeys, since, lastError } = relay;
  const link = query("relays", { store, relay: name });
  const waiting = `${relay.pendingEstimated ? "about " : ""}${plural(pending, "message")} ${pending === 1 ? "waits" : "wait"}`;
  const causes: Found[] = [];
  const base = { level: relay.level, since, link };
  if (state === "out") {
    const text = `Relay ${name}: target out${ago(since)}, ${waiting}.`;
    causes.push({ kind: "out", ...base, text, so: lastError, command: "txbox status" });
  }
  if (state === "still") {
    const text = `Relay ${name}: nothing has left${ago(since)}, ${waiting}.`;
    causes.push({
      kind: "still",
      ...base,
      text,
      so: lastError ?? "Its target may be slow or out.",
      command: "txbox status",
    });
  }
  if (state === "alone") {
    const text = `Relay ${name}: no process runs it, ${waiting}${oldest(relay)}.`;
    causes.push({
      kind: "alone",
      ...base,
      text,
      so: "Nothing of it leaves until a process is started.",
      command: `txbox relay ${shellWord(name)}`,
    });
  }
  if (state === "paused") {
    const text = pending > 0 ? `Relay ${name} is paused, ${waiting}${oldest(relay)}.` : `Relay ${name} is paused.`;
    causes.push({
      kind: "paused",
      ...base,
      text,
      so: "It publishes nothing until it is resumed.",
      command: `txbox relays resume ${shellWord(name)}`,
    });
  }
  if (state === "late") {
    const text = `Relay ${name} is late: ${waiting}${oldest(relay)}.`;
    causes.push({
      kind: "late",
      ...base,
      text,
      so: lastError ?? "Its consumers are as late as that.",
      command: "txbox doctor",
    });
  }
  const letters = plural(dead, "dead letter");
  if (relay.heldByDead && blockedKeys > 0) {
    causes.push({
      kind: "held",
      level: "bad",
      text: `Relay ${name}: ${letters} ${dead === 1 ? "blocks" : "block"} ${plural(blockedKeys, "key")}, ${plural(relay.parked, "message")} ${relay.parked === 1 ? "waits" : "wait"}.`,
      // The last error of the relay may be of another message.
      so: relay.heldError ?? lastError,
      since: relay.lagMs === null ? null : Date.now() - relay.lagMs,
      link: query("dead", { store, relay: name }),
      command: `txbox dead list --relay ${shellWord(name)}`,
    });
  } else if (blockedKeys > 0 && state !== "out") {
    const text = `Relay ${name}: ${plural(blockedKeys, "key")} ${blockedKeys === 1 ? "is" : "are"} blocked, ${plural(relay.parked, "message")} ${relay.parked === 1 ? "waits" : "wait"} for their turn.`;
    const level = relay.state === "blocked" ? relay.level : "attention";
    causes.push({
      kind: "blocked",
      level,
      text,
      so: lastError,
      since: null,
      link: query("dead", { tab: "blocked", store, relay: name }),
      command: `txbox blocked --relay ${shellWord(name)}`,
    });
  }
  if (dead > 0 && !(relay.heldByDead && blockedKeys > 0)) {
    causes.push({
      kind: "dead",
      level: relay.level === "bad" && (state === "blocked" || state === "flowing") ? "bad" : "attention",
      text: `Relay ${name}: ${letters}.`,
      so: "Their consumers never got them.",
      since: null,
      link: query("dead", { store, relay: name }),
      command: `txbox dead list --relay ${shellWord(name)}`,
    });
  }
  if (relay.holdsBackRetention) {
    causes.push({
      kind: "retention",
      level: "attention",
      text: `Relay ${name} holds back retention: the log grows.`,
      so: "Messages past their time are kept for it.",
      since: null,
      link,
      command: `txbox relays drop ${shellWord(name)}`,
    });
  }
  return causes;
}

function consumerCauses({ store, name, level, words, lastError }: ConsumerView): Found[] {
  if (level === "good") return [];
  const link = query("relays", { store, consumer: name });
  return [
    {
      kind: "consumer",
      level,
      text: `Consumer ${name}: ${words}.`,
      so: lastError,
      link,
      command: "txbox status",
      since: null,
    },
  ];
}

function ago(since: number | null): string {
  return since === null ? "" : ` for ${formatMs(Date.now() - since)}`;
}

function oldest({ lagMs, pending }: RelayView): string {
  if (lagMs === null) return "";
  return pending === 1 ? `, for ${formatMs(lagMs)}` : `, the first for ${formatMs(lagMs)}`;
}

function query(screen: string, values: Readonly<Record<string, string>>): string {
  return `${screen}?${new URLSearchParams(values).toString()}`;
}
