import { Global, Inject, Injectable, Module, type OnModuleDestroy, type Type } from "@nestjs/common";
import { Test } from "@nestjs/testing";
import { Pool } from "pg";
import { defineEvents, type MessageOf, type StandardSchema } from "txbox";
import { createInProcessBus } from "txbox/in-process";
import { OnMessage, TxboxModule, TxboxOutbox, type MessagingOptions } from "txbox/nestjs";
import { createPostgresStore } from "txbox/postgres";

const schema = "lifecycle";
const connectionString = process.env["DATABASE_URL"];

/** Takes an object whose `amount` is a number. */
const withAmount: StandardSchema<{ amount: number }, { amount: number; doubled: number }> = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => {
      const { amount } = value as { amount?: unknown };
      if (typeof amount !== "number") return { issues: [{ message: "expected a number", path: ["amount"] }] };
      return { value: { amount, doubled: amount * 2 } };
    },
  },
};
const events = defineEvents({ paid: { stream: "payments", schema: withAmount } });

const message = { position: 1n, stream: "payments", type: "paid", key: null, aggregateType: null, aggregateId: null };
const incoming = (id: string, payload: unknown) => ({
  ...message,
  id,
  body: JSON.stringify(payload),
  headers: {},
  createdAt: new Date(),
});

const seen: string[] = [];

@Injectable()
class Payments {
  @OnMessage("paid")
  async paid(_: unknown, { payload }: MessageOf<typeof events, "paid">): Promise<void> {
    seen.push(`handles ${payload.doubled}`);
    await new Promise((resolve) => setTimeout(resolve, 500));
    seen.push(`handled ${payload.doubled}`);
  }
}

@Injectable()
class OtherPayments {
  @OnMessage("paid")
  async other(): Promise<void> {}
}

@Injectable()
class OfUnknownType {
  @OnMessage("payed")
  async payed(): Promise<void> {}
}

@Injectable()
class Cashier {
  constructor(readonly outbox: TxboxOutbox<typeof events>) {}
}

class Ends implements OnModuleDestroy {
  constructor(@Inject(Pool) private readonly pool: Pool) {}

  async onModuleDestroy(): Promise<void> {
    seen.push("pool ends");
    await this.pool.end();
  }
}

const database = {
  providers: [{ provide: Pool, useFactory: () => new Pool({ connectionString }) }],
  exports: [Pool],
};

@Module(database)
class DatabaseModule extends Ends {}

@Global()
@Module(database)
class GlobalDatabaseModule extends Ends {}

beforeAll(async () => {
  const pool = new Pool({ connectionString });
  await createPostgresStore({ client: pool, schema }).migrator.migrate();
  await pool.end();
});

describe("what the factory depends on is destroyed when everything has stopped", () => {
  const parts = (bus: ReturnType<typeof createInProcessBus>, imports: Type[]) =>
    TxboxModule.forRootAsync({
      imports,
      inject: [Pool],
      useFactory: (pool: Pool) => ({
        store: createPostgresStore({ client: pool, schema }),
        events,
        relays: [{ name: "lifecycle", publisher: bus }],
        inboxes: [{ consumer: "lifecycle", subscriber: bus }],
      }),
    });

  @Module({ imports: [DatabaseModule], exports: [DatabaseModule] })
  class SharedModule {}

  test.each([
    ["a module that it imports", [DatabaseModule], []],
    ["a module that others import too", [DatabaseModule], [DatabaseModule]],
    ["a module behind one that it imports", [SharedModule], [SharedModule]],
    ["a global module before it", [], [GlobalDatabaseModule]],
  ])("%s", async (name, imports: Type[], beside: Type[]) => {
    const bus = createInProcessBus();
    @Module({ imports: [...beside, parts(bus, imports)], providers: [Payments, Cashier] })
    class FeatureModule {}
    const module = await Test.createTestingModule({ imports: [FeatureModule] }).compile();
    await module.init();
    const pool = module.get(Pool);
    const tx = await pool.connect();
    await tx.query("begin");
    const { outbox } = module.get(Cashier);
    const { id } = await outbox.enqueue(tx, { type: "paid", payload: { amount: 21 } });
    await tx.query("commit");
    tx.release();
    const deadline = Date.now() + 20_000;
    while (seen.length === 0) {
      if (Date.now() > deadline) throw new Error("no message");
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await module.close();
    expect(seen.splice(0)).toEqual(["handles 42", "handled 42", "pool ends"]);
    const other = new Pool({ connectionString });
    const { rows } = await other.query(`select status from ${schema}.receipt where message_id = $1`, [id]);
    expect([name, rows]).toEqual([name, [{ status: "processed" }]]);
    const left = await other.query(`select status from ${schema}.message_status where id = $1`, [id]);
    expect(left.rows).toEqual([{ status: "published" }]);
    await other.end();
  });
});

describe("events of the application are those of its inboxes", () => {
  const pool = new Pool({ connectionString });
  const store = createPostgresStore({ client: pool, schema });
  afterAll(() => pool.end());

  async function started(options: Partial<MessagingOptions>, ...providers: Type[]) {
    const bus = createInProcessBus();
    const inboxes = [{ consumer: "contracts", subscriber: bus, ...options.inboxes?.[0] }];
    const all = { store, events: events as never, ...options, inboxes };
    const module = await Test.createTestingModule({ imports: [TxboxModule.forRoot(all)], providers }).compile();
    await module.init().catch(async (error: unknown) => {
      await module.close();
      throw error;
    });
    return { bus, close: () => module.close() };
  }

  test("a payload that does not fit is rejected before the handler", async () => {
    const { bus, close } = await started({}, Payments);
    const [result] = await bus.publish([incoming("m-1", { amount: "a lot" })], AbortSignal.timeout(10_000));
    expect(result).toMatchObject({
      status: "rejected",
      error: { message: expect.stringContaining("expected a number") },
    });
    await close();
    expect(seen.splice(0)).toEqual([]);
  });

  test("a handler of a type that they do not have is refused, unless the inbox has events of its own", async () => {
    await expect(started({}, OfUnknownType)).rejects.toThrow(/events has no "payed".*Did you mean "paid"/);
    const own = [{ events: defineEvents<{ payed: unknown }>() }] as never;
    const { close } = await started({ inboxes: own }, OfUnknownType);
    await close();
  });

  test("two handlers of a type are named, and so is an inbox without any", async () => {
    await expect(started({}, Payments, OtherPayments)).rejects.toThrow(
      /"paid"\) of OtherPayments\.other: there is @OnMessage\("paid"\) of Payments\.paid already/,
    );
    await expect(started({})).rejects.toThrow(
      /No provider has a method with @OnMessage for the inbox contracts.*providers/,
    );
  });
});
