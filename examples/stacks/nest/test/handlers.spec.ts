import { Controller, Injectable, Scope, type Type } from "@nestjs/common";
import { HealthCheckService, TerminusModule } from "@nestjs/terminus";
import { Test } from "@nestjs/testing";
import { Pool } from "pg";
import { createInProcessBus } from "txbox/in-process";
import { OnMessage, TxboxHealth, TxboxModule, type MessagingOptions } from "txbox/nestjs";
import { createPostgresStore } from "txbox/postgres";

const handled: string[] = [];

class Base {
  @OnMessage("base")
  async base(): Promise<void> {
    handled.push("base of Base");
  }

  @OnMessage("overridden")
  async overridden(): Promise<void> {
    handled.push("overridden of Base");
  }
}

@Injectable()
class Handlers extends Base {
  private readonly name = "Handlers";

  @OnMessage("one")
  @OnMessage("two")
  async oneAndTwo(_: unknown, { type }: { type: string }): Promise<void> {
    handled.push(`${type} of ${this.name}`);
  }

  @OnMessage("overridden")
  override async overridden(): Promise<void> {
    handled.push(`overridden of ${this.name}`);
  }
}

@Controller()
class HandlingController {
  @OnMessage("three", "second")
  async three(): Promise<void> {
    handled.push("three of HandlingController");
  }
}

@Injectable()
class OfFirst {
  @OnMessage("three", "first")
  async three(): Promise<void> {
    handled.push("three of OfFirst");
  }
}

@Injectable({ scope: Scope.REQUEST })
class PerRequest {
  @OnMessage("four")
  async four(): Promise<void> {}
}

@Injectable()
class Unnamed {
  @OnMessage("five")
  async five(): Promise<void> {}
}

@Injectable()
class Misnamed {
  @OnMessage("five", "thrid")
  async five(): Promise<void> {}
}

describe("handlers", () => {
  const pool = new Pool({ connectionString: process.env["DATABASE_URL"] });
  const store = createPostgresStore({ client: pool, schema: "handlers" });
  beforeAll(() => store.migrator.migrate());
  afterAll(() => pool.end());

  const consumers = (...names: string[]): Partial<MessagingOptions> => ({
    inboxes: names.map((consumer) => ({ consumer, subscriber: createInProcessBus() })),
  });

  async function start(options: Partial<MessagingOptions>, ...providers: Type[]): Promise<void> {
    const module = await Test.createTestingModule({
      imports: [TxboxModule.forRoot({ store, ...options })],
      providers,
    }).compile();
    try {
      await module.init();
    } finally {
      await module.close();
    }
  }

  test("of a controller, by the name of their inbox", async () => {
    const first = createInProcessBus();
    const second = createInProcessBus();
    const module = await Test.createTestingModule({
      imports: [
        TxboxModule.forRoot({
          store,
          inboxes: [
            { consumer: "first", subscriber: first },
            { consumer: "second", subscriber: second },
          ],
        }),
      ],
      providers: [OfFirst],
      controllers: [HandlingController],
    }).compile();
    await module.init();
    const message = { position: 1n, stream: "s", key: null, aggregateType: null, aggregateId: null, body: "1" };
    await second.publish(
      [{ ...message, id: "m-1", type: "three", headers: {}, createdAt: new Date() }],
      AbortSignal.timeout(10_000),
    );
    await module.close();
    expect(handled.splice(0)).toEqual(["three of HandlingController"]);
  });

  test("of a provider and its base class, bound to their instance; one inbox needs no name", async () => {
    const bus = createInProcessBus();
    const module = await Test.createTestingModule({
      imports: [TxboxModule.forRoot({ store, inboxes: [{ consumer: "only", subscriber: bus }] })],
      providers: [Handlers, { provide: "alias", useExisting: Handlers }],
    }).compile();
    await module.init();
    for (const type of ["one", "two", "base", "overridden"]) {
      const message = { id: type, type, position: 1n, stream: "s", key: null, aggregateType: null, aggregateId: null };
      const [result] = await bus.publish(
        [{ ...message, body: "1", headers: {}, createdAt: new Date() }],
        AbortSignal.timeout(10_000),
      );
      expect(result).toEqual({ status: "published" });
    }
    await module.close();
    expect(handled.splice(0)).toEqual(["one of Handlers", "two of Handlers", "base of Base", "overridden of Handlers"]);
  });

  test("that cannot be given messages are named in the error", async () => {
    await expect(start({}, Unnamed)).rejects.toThrow(
      /@OnMessage\("five"\) of Unnamed\.five has no inbox.*Pass inboxes/,
    );
    await expect(start(consumers("a", "b"), Unnamed)).rejects.toThrow(/does not say which inbox.*a, b/);
    await expect(start(consumers("first", "third"), Misnamed)).rejects.toThrow(
      /there is no inbox "thrid".*first, third/,
    );
    await expect(start(consumers("a"), PerRequest)).rejects.toThrow(
      /of PerRequest\.four is on a provider that is made for each/,
    );
    await expect(start(consumers("a", "a"))).rejects.toThrow(/two inboxes a/);
    await expect(start({ relay: [] } as never)).rejects.toThrow(
      /TxboxModule has no option "relay".*Did you mean "relays"/,
    );
  });

  test("health is what terminus takes, and is down when a relay has ended", async () => {
    const module = await Test.createTestingModule({
      imports: [
        TerminusModule.forRoot({ logger: false }),
        TxboxModule.forRoot({ store, relays: [{ name: "r", publisher: createInProcessBus() }] }),
      ],
    }).compile();
    const [checks, health] = [module.get(HealthCheckService), module.get(TxboxHealth)];
    const check = () => checks.check([() => health.isHealthy("messages"), () => health.isAlive()]);
    await expect(check()).rejects.toMatchObject({
      status: 503,
      response: { error: { txbox: { status: "down", reasons: ["relay r does not run"] } } },
    });
    await module.init();
    await expect(check()).resolves.toMatchObject({
      status: "ok",
      details: { messages: { status: "up", reasons: [] }, txbox: { status: "up", reasons: [] } },
    });
    await module.close();
  });
});
