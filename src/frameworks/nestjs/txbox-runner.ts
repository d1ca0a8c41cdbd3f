import type { AnyEvents } from "../../core/message.ts";
import type { HandlerFunction } from "../../inbox/handler-registry.ts";
import type { Inbox } from "../../inbox/inbox.ts";
import { invalid, type Messaging } from "../shared/messaging.ts";
import type { NestDiscovery, NestWrapper } from "./nest-types.ts";
import { marksOf, type HandlerMark } from "./on-message.ts";

/** Finds the handlers when all modules are there, and starts and stops everything with the application. */
export class TxboxRunner {
  readonly #messaging: Messaging<AnyEvents>;
  readonly #discovery: NestDiscovery;

  constructor(messaging: Messaging<AnyEvents>, discovery: NestDiscovery) {
    this.#messaging = messaging;
    this.#discovery = discovery;
  }

  async onApplicationBootstrap(): Promise<void> {
    const instances = new Set<unknown>();
    for (const wrapper of [...this.#discovery.getProviders(), ...this.#discovery.getControllers()]) {
      // The same instance may be there by several tokens.
      if (instances.has(wrapper.instance)) continue;
      instances.add(wrapper.instance);
      this.#register(wrapper);
    }
    await this.#messaging.start();
  }

  /** Before those are destroyed that this module depends on, such as the one that has the pool. */
  async onModuleDestroy(): Promise<void> {
    await this.#messaging.stop();
  }

  #register(wrapper: NestWrapper): void {
    const { metatype, name } = wrapper;
    const isStatic = wrapper.isDependencyTreeStatic();
    const found: unknown = isStatic ? wrapper.instance : prototypeOf(metatype);
    if (typeof found !== "object" || found === null) return;
    for (const mark of isStatic ? marksOf(found) : marksOf(Object.create(found) as object)) {
      const where = `@OnMessage("${mark.type}") of ${String(name)}.${mark.method}`;
      if (!isStatic) {
        throw invalid("OnMessage", `${where} is on a provider that is made for each request`, "Make it a singleton");
      }
      const handler = (found as Record<string, HandlerFunction<unknown>>)[mark.method]!;
      this.#inboxOf(mark, where).on(mark.type, handler.bind(found));
    }
  }

  #inboxOf({ consumer }: HandlerMark, where: string): Inbox<AnyEvents, unknown> {
    const { inboxes } = this.#messaging;
    const names = [...inboxes.keys()].join(", ");
    if (inboxes.size === 0) {
      throw invalid("inboxes", `${where} has no inbox`, "Pass inboxes: [{ consumer, subscriber }] to TxboxModule");
    }
    if (consumer === undefined && inboxes.size > 1) {
      throw invalid("consumer", `${where} does not say which inbox`, `Name it as the second argument: ${names}`);
    }
    const inbox = consumer === undefined ? [...inboxes.values()][0] : inboxes.get(consumer);
    if (inbox !== undefined) return inbox;
    throw invalid("consumer", `${where}: there is no inbox "${consumer}"`, `There are ${names}`);
  }
}

function prototypeOf(metatype: unknown): unknown {
  return typeof metatype === "function" ? metatype.prototype : undefined;
}
