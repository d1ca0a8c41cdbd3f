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
  /** Where the handler of a type is, by consumer. */
  readonly #handlers = new Map<Inbox<AnyEvents, unknown>, Map<string, string>>();
  #stopped: Promise<void> | undefined;

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
    for (const [consumer, inbox] of this.#messaging.inboxes) {
      if (this.#handlers.has(inbox)) continue;
      const fix = "List its class in the providers of a module that the application imports";
      throw invalid("OnMessage", `No provider has a method with @OnMessage for the inbox ${consumer}`, fix);
    }
    await this.#messaging.start();
  }

  /** Nest 10 destroys global modules first; by others the stopper has done it before. */
  onModuleDestroy(): Promise<void> {
    this.#stopped ??= this.#messaging.stop();
    return this.#stopped;
  }

  #register(wrapper: NestWrapper): void {
    const { metatype, name } = wrapper;
    const isStatic = wrapper.isDependencyTreeStatic();
    const found: unknown = isStatic ? wrapper.instance : prototypeOf(metatype);
    if (typeof found !== "object" || found === null) return;
    for (const mark of isStatic ? marksOf(found) : marksOf(Object.create(found) as object)) {
      const where = `@OnMessage("${mark.type}") of ${String(name)}.${mark.method}`;
      if (!isStatic) {
        const why = "is on a provider that is made for each request, or gets one that is";
        throw invalid("OnMessage", `${where} ${why}`, "Make it a singleton, and what it injects too");
      }
      const handler = (found as Record<string, HandlerFunction<unknown>>)[mark.method]!;
      const inbox = this.#inboxOf(mark, where);
      const handlers = this.#handlers.get(inbox) ?? new Map<string, string>();
      const other = handlers.get(mark.type);
      if (other !== undefined) {
        const fix = "Keep one of them, or give each an inbox of its own: one type has one handler in an inbox";
        throw invalid("OnMessage", `${where}: there is ${other} already`, fix);
      }
      inbox.on(mark.type, handler.bind(found));
      this.#handlers.set(inbox, handlers.set(mark.type, where));
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
    throw invalid("consumer", `${where}: there is no inbox "${consumer}"`, `The inboxes are: ${names}`);
  }
}

/** Stops everything before what it depends on is destroyed, such as the module that has the pool. */
export class TxboxStopper {
  readonly #runner: TxboxRunner;

  constructor(runner: TxboxRunner) {
    this.#runner = runner;
  }

  onModuleDestroy(): Promise<void> {
    return this.#runner.onModuleDestroy();
  }
}

function prototypeOf(metatype: unknown): unknown {
  return typeof metatype === "function" ? metatype.prototype : undefined;
}
