import { TxboxError } from "../core/errors.ts";
import type { EventContract } from "../core/event-contract.ts";
import { DRAFT, jsonSchemaOf, type JsonSchema } from "./json-schema-of.ts";

const GENERATOR = "txbox contracts export";

/** What a document says of an event. */
export interface DescribedEvent {
  readonly type: string;
  readonly stream: string;
  readonly version: number;
  /** Its `$ref`s are pointers into the document. */
  readonly payload: unknown;
}

export interface Description {
  readonly events: readonly DescribedEvent[];
  /** Where the pointers lead to. */
  readonly document: unknown;
}

/** The events in AsyncAPI 3: a channel for each stream, a message for each type. Always the same for the same events. */
export function asyncapiDocument(
  contracts: readonly EventContract[],
  title: string,
): Readonly<Record<string, unknown>> {
  const sorted = contracts.toSorted((a, b) => order(a.type, b.type));
  const messageIds = idsOf(sorted.map(({ type }) => type));
  const streams = [...new Set(sorted.map(({ stream }) => stream))].sort(order);
  const channelIds = idsOf(streams);
  return {
    asyncapi: "3.0.0",
    info: {
      title,
      // Of this document, which AsyncAPI asks for. What changes are the events.
      version: "1.0.0",
      description: "Each event has a version of its own, which the header schemaVersion carries.",
    },
    "x-generator": GENERATOR,
    defaultContentType: "application/json",
    channels: Object.fromEntries(
      streams.map((stream) => {
        const ids = sorted.filter((one) => one.stream === stream).map(({ type }) => messageIds.get(type)!);
        const messages = Object.fromEntries(ids.map((id) => [id, { $ref: `#/components/messages/${id}` }]));
        return [channelIds.get(stream)!, { address: stream, messages }];
      }),
    ),
    components: {
      messages: Object.fromEntries(
        sorted.map((contract) => [messageIds.get(contract.type)!, messageOf(contract, messageIds.get(contract.type)!)]),
      ),
    },
  };
}

/** The JSON Schema of one event, as a file of its own. */
export function schemaDocument(contract: EventContract): JsonSchema {
  const { type, version } = contract;
  return { $schema: DRAFT, title: `${type}, version ${version}`, ...jsonSchemaOf(contract) };
}

function messageOf(contract: EventContract, id: string): JsonSchema {
  const { type, version } = contract;
  const at = `#/components/messages/${id}/payload/schema`;
  return {
    name: type,
    contentType: "application/json",
    headers: { type: "object", properties: { schemaVersion: { const: version } } },
    payload: {
      schemaFormat: "application/schema+json;version=draft-07",
      schema: withRefsAt(jsonSchemaOf(contract), at),
    },
  };
}

/** Pointers within a schema, as pointers within the document that it is put into. */
function withRefsAt(schema: unknown, at: string): unknown {
  if (Array.isArray(schema)) return schema.map((one) => withRefsAt(one, at));
  if (typeof schema !== "object" || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).map(([name, value]) => [
      name,
      name === "$ref" && typeof value === "string" && value.startsWith("#")
        ? `${at}${value.slice(1)}`
        : withRefsAt(value, at),
    ]),
  );
}

/** The other way: what a document says. Throws `invalid_option` for one that is not of this form. */
export function readAsyncapi(document: unknown, name: string): Description {
  const channels = Object.values(childOf(document, "channels"));
  const messages = childOf(childOf(document, "components"), "messages");
  const events = Object.entries(messages).map(([id, message]): DescribedEvent => {
    const { name: type = id, payload, headers } = message as Record<string, unknown>;
    const pointer = `#/components/messages/${id}`;
    const channel = channels.find((one) =>
      Object.values(childOf(one, "messages")).some((ref) => childOf({ ref }, "ref")["$ref"] === pointer),
    );
    const stream = childOf({ channel }, "channel")["address"];
    if (typeof type !== "string" || typeof stream !== "string") throw foreign(name, id);
    const version = childOf(childOf(headers, "properties"), "schemaVersion")["const"];
    const schema = isObject(payload) && "schemaFormat" in payload ? payload["schema"] : payload;
    return { type, stream, version: typeof version === "number" ? version : 1, payload: schema };
  });
  if (!isObject(document) || typeof document["asyncapi"] !== "string") throw foreign(name, undefined);
  return { events, document };
}

/** Whether a document may be overwritten: one that was written by hand may not. */
export function isGenerated(document: unknown): boolean {
  return isObject(document) && document["x-generator"] === GENERATOR;
}

function foreign(name: string, message: string | undefined): TxboxError {
  const what = message === undefined ? "is no AsyncAPI document" : `has the message ${message} without a channel`;
  return new TxboxError("invalid_option", `${name} ${what}`, { fix: "Write it with txbox contracts export" });
}

/** AsyncAPI takes letters, digits and . - _ for names of its parts. */
function idsOf(names: readonly string[]): ReadonlyMap<string, string> {
  const ids = new Map<string, string>();
  const taken = new Set<string>();
  for (const name of names) {
    const plain = name.replaceAll(/[^\w.-]/g, "_");
    let id = plain;
    for (let n = 2; taken.has(id); n++) id = `${plain}_${n}`;
    taken.add(id);
    ids.set(name, id);
  }
  return ids;
}

function childOf(parent: unknown, name: string): Record<string, unknown> {
  const child = isObject(parent) ? parent[name] : undefined;
  return isObject(child) ? child : {};
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The same everywhere, whatever the language of the machine. */
function order(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
