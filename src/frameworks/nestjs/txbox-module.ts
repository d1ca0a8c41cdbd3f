import type { AnyEvents, EventMap } from "../../core/message.ts";
import { createMessaging, type Messaging, type MessagingOptions } from "../shared/messaging.ts";
import type { NestCore, NestDiscovery, NestFactory, NestModule } from "./nest-types.ts";
import { TxboxHealth, TxboxOutbox } from "./services.ts";
import { TxboxRunner, TxboxStopper } from "./txbox-runner.ts";

/** The options of a module whose parts have to be injected or awaited. */
export interface TxboxAsyncOptions<Map extends EventMap = AnyEvents> {
  /** Modules whose exports are injected into the factory. */
  // oxlint-disable-next-line typescript/no-explicit-any -- as Nest itself has it
  imports?: any[];
  /** Tokens of what the factory gets. */
  // oxlint-disable-next-line typescript/no-explicit-any -- as Nest itself has it
  inject?: any[];
  // oxlint-disable-next-line typescript/no-explicit-any -- the injected ones
  useFactory: (...injected: any[]) => MessagingOptions<Map> | Promise<MessagingOptions<Map>>;
}

/** What is there for every module. */
// oxlint-disable-next-line typescript/no-extraneous-class -- Nest knows modules by their class
class TxboxCoreModule {}

/** Everything that was made, under a token that only this module knows. */
const MESSAGING = Symbol("txbox.messaging");

/**
 * Gives `TxboxOutbox` and `TxboxHealth` to every module, gives messages to methods with `@OnMessage`, starts relays and inboxes
 * when the application has started, and stops them when it closes.
 */
// oxlint-disable-next-line typescript/no-extraneous-class -- Nest knows modules by their class
export class TxboxModule {
  static forRoot<Map extends EventMap = AnyEvents>(options: MessagingOptions<Map>): Promise<NestModule> {
    return moduleOf({ useFactory: () => options });
  }

  static forRootAsync<Map extends EventMap = AnyEvents>(options: TxboxAsyncOptions<Map>): Promise<NestModule> {
    return moduleOf(options);
  }
}

async function moduleOf<Map extends EventMap>(options: TxboxAsyncOptions<Map>): Promise<NestModule> {
  // Not before it is needed, and without its types: Nest is there wherever this is called.
  // oxlint-disable-next-line typescript/no-unnecessary-type-assertion -- without it the compiler looks for the types
  const { DiscoveryModule, DiscoveryService } = (await import("@nestjs/core" as string)) as NestCore;
  const { imports = [], inject = [], useFactory } = options;
  const providers: NestFactory[] = [
    {
      provide: MESSAGING,
      useFactory: async (...injected: unknown[]) => createMessaging("TxboxModule", await useFactory(...injected)),
      inject,
    },
    {
      provide: TxboxRunner,
      useFactory: (messaging: Messaging<AnyEvents>, discovery: NestDiscovery) => new TxboxRunner(messaging, discovery),
      inject: [MESSAGING, DiscoveryService],
    },
    {
      provide: TxboxOutbox,
      useFactory: ({ outbox }: Messaging<AnyEvents>) => new TxboxOutbox(outbox),
      inject: [MESSAGING],
    },
    {
      provide: TxboxHealth,
      useFactory: ({ health }: Messaging<AnyEvents>) => new TxboxHealth(health),
      inject: [MESSAGING],
    },
  ];
  const core: NestModule = {
    module: TxboxCoreModule,
    global: true,
    imports: [DiscoveryModule, ...imports],
    providers,
    exports: [TxboxOutbox, TxboxHealth, TxboxRunner],
  };
  // Nest 11 and 12 destroy global modules last, after those that the factory gets its pool and connections from. So what
  // stops everything is in a module that is not global: it is destroyed before those that it imports, and before global ones.
  const stopper: NestFactory = {
    provide: TxboxStopper,
    useFactory: (runner: TxboxRunner) => new TxboxStopper(runner),
    inject: [TxboxRunner],
  };
  return { module: TxboxModule, imports: [core], providers: [stopper] };
}
