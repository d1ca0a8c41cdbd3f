import type { AnyEvents, EventMap } from "../../core/message.ts";
import { valueKind } from "../../core/value-kind.ts";
import type { HandlerFunction } from "../../inbox/handler-registry.ts";
import {
  createMessaging,
  invalid,
  type InboxPart,
  type Messaging,
  type MessagingOptions,
} from "../shared/messaging.ts";

/** What the plugin needs of a Fastify instance. */
export interface FastifyLike {
  decorate(name: string, value: unknown): unknown;
  hasDecorator(name: string): boolean;
  addHook(name: "onReady" | "onClose", hook: () => Promise<void>): unknown;
}

export interface FastifyInboxPart extends InboxPart {
  /** By message type. */
  handlers: Readonly<Record<string, HandlerFunction<never, string, never>>>;
}

export interface TxboxFastifyOptions<Map extends EventMap = AnyEvents> extends MessagingOptions<Map> {
  inboxes?: readonly FastifyInboxPart[];
}

/** `fastify.txbox`: everything that the plugin made. `fastify.outbox` is its outbox. */
export type TxboxFastify<Map extends EventMap = AnyEvents> = Omit<Messaging<Map>, "start" | "stop">;

/**
 * A plugin: decorates the instance with `outbox` and `txbox`, starts inboxes and relays when it is ready, and stops them
 * when it closes, before the plugins that were registered earlier.
 */
export const txboxFastify: {
  <Map extends EventMap = AnyEvents>(fastify: FastifyLike, options: TxboxFastifyOptions<Map>): Promise<void>;
} = Object.assign(
  async function txboxFastify<Map extends EventMap>(
    fastify: FastifyLike,
    options: TxboxFastifyOptions<Map>,
  ): Promise<void> {
    const of = "txboxFastify";
    if (fastify.hasDecorator("txbox")) {
      throw invalid("txbox", `${of} is registered already`, "Register it once, and name all relays and inboxes there");
    }
    const messaging = createMessaging<Map>(of, { ...options, ...inboxesOf(of, options.inboxes) }, REGISTER_OPTIONS);
    for (const { consumer, handlers } of options.inboxes ?? []) {
      const inbox = messaging.inboxes.get(consumer);
      for (const [type, handler] of Object.entries(handlers)) inbox?.on(type, handler);
    }
    const { outbox, relays, inboxes: made, health } = messaging;
    fastify.decorate("outbox", outbox);
    fastify.decorate("txbox", { outbox, relays, inboxes: made, health });
    fastify.addHook("onReady", () => messaging.start());
    fastify.addHook("onClose", () => messaging.stop());
  },
  {
    // For the whole application, not only for the plugin itself.
    [Symbol.for("skip-override")]: true,
    [Symbol.for("plugin-meta")]: { name: "txbox", fastify: ">=4" },
    [Symbol.for("fastify.display-name")]: "txbox",
  },
);

/** Fastify's own, which it passes on. */
const REGISTER_OPTIONS = ["prefix", "logLevel", "logSerializers"];

function inboxesOf(of: string, inboxes: unknown): { inboxes?: InboxPart[] } {
  if (!Array.isArray(inboxes)) return {};
  const parts = (inboxes as readonly (FastifyInboxPart | null | undefined)[]).map((given, i) => {
    if (typeof given !== "object" || given === null) {
      const fix = "Each is { consumer, subscriber, handlers }";
      throw invalid(`inboxes[${i}]`, `${of}: inboxes[${i}] is ${valueKind(given)}`, fix);
    }
    const { handlers, ...part } = given;
    if (typeof handlers === "object" && handlers !== null) return part;
    const fix = "Pass handlers: { order_created: async (tx, message) => { … } }";
    throw invalid("handlers", `${of}: the inbox ${part.consumer} needs handlers`, fix);
  });
  return { inboxes: parts };
}
