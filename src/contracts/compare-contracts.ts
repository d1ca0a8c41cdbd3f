import type { DescribedEvent, Description } from "./asyncapi-document.ts";
import { misfits, type Misfit } from "./compare-schemas.ts";

export interface ContractChange {
  readonly event: string;
  /** The part of the payload; undefined: the event itself. */
  readonly path?: string;
  /**
   * `breaking`: messages are refused or lost sight of. `versioned`: they would be, but the version was raised, so
   * consumers that do not know it wait. `harmless`: good to know.
   */
  readonly severity: "breaking" | "versioned" | "harmless";
  readonly says: string;
}

/** What changed from one description of events to the next, for producers and consumers that are not changed at once. */
export function compareContracts(before: Description, after: Description): ContractChange[] {
  const now = new Map(after.events.map((event) => [event.type, event]));
  const was = new Map(before.events.map((event) => [event.type, event]));
  const changes = before.events.flatMap((old): ContractChange[] => {
    const event = now.get(old.type);
    const says = "was removed: its consumers hear of it no more";
    if (event === undefined) return [{ event: old.type, severity: "breaking", says }];
    return [...ofEvent(old, event), ...ofPayload(old, event, before, after)];
  });
  const added = after.events.filter(({ type }) => !was.has(type));
  return [
    ...changes,
    ...added.map(({ type }): ContractChange => ({ event: type, severity: "harmless", says: "is new" })),
  ];
}

function ofEvent(old: DescribedEvent, now: DescribedEvent): ContractChange[] {
  const changes: ContractChange[] = [];
  const event = old.type;
  if (old.stream !== now.stream) {
    const says = `went from the stream "${old.stream}" to "${now.stream}": consumers of the old one do not get it any more`;
    changes.push({ event, severity: "breaking", says });
  }
  if (now.version < old.version) {
    const says = `went back from version ${old.version} to ${now.version}: messages of version ${old.version} wait for ever`;
    changes.push({ event, severity: "breaking", says });
  }
  if (now.version > old.version) {
    const says = `is version ${now.version}, was ${old.version}: consumers that do not know it wait until they do`;
    changes.push({ event, severity: "harmless", says });
  }
  return changes;
}

function ofPayload(
  old: DescribedEvent,
  now: DescribedEvent,
  before: Description,
  after: Description,
): ContractChange[] {
  const earlier = { schema: old.payload, document: before.document };
  const later = { schema: now.payload, document: after.document };
  // New messages meet consumers that were not changed; old ones are still under way, and come again from the log.
  const forConsumers = misfits(later, earlier);
  const forMessages = misfits(earlier, later);
  const severity = ({ kind }: Misfit): ContractChange["severity"] =>
    kind === "absent" ? "harmless" : now.version > old.version ? "versioned" : "breaking";
  const told = (one: Misfit, says: string) => ({ event: old.type, path: one.path, severity: severity(one), says });
  return [
    ...forConsumers.map((one) => told(one, newRefused(one))),
    ...forMessages.map((one) => told(one, oldRefused(one))),
  ];
}

/** A consumer that was not changed refuses new messages. */
function newRefused({ kind, what }: Misfit): string {
  const who = "consumers that were not changed refuse the message";
  switch (kind) {
    case "required":
      return `was always there, and may be missing now: ${who}`;
    case "removed":
      return `was removed: ${who}`;
    case "absent":
      return "was optional, and is not written any more";
    case "unknown":
      return `is new: ${who}`;
    case "limit":
      return `may be outside of ${what} now: ${who}`;
    case "type":
    case "value":
      return `may be ${what} now: ${who}`;
  }
}

/** A consumer that was changed refuses messages that were written before. */
function oldRefused({ kind, what }: Misfit): string {
  const who = "older messages are refused";
  switch (kind) {
    case "absent":
      return "is new, and optional";
    case "required":
    case "removed":
      return `must be there now: ${who} without it`;
    case "unknown":
      return `is not allowed any more: ${who} that have it`;
    case "limit":
      return `must keep ${what} now: ${who} that do not`;
    case "type":
    case "value":
      return `may not be ${what} any more: ${who} where it is`;
  }
}
