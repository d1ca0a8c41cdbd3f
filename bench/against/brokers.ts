import type { BrokerName } from "../brokers/index.ts";
import type { Player } from "../lib/player.ts";
import { mustEqual } from "../lib/rounds.ts";
import { CONSUMED, PUBLISHED, WARM_UPS, withBrokers } from "../sections/brokers.ts";
import { compare } from "./sides.ts";
import type { Side, Sides } from "./sides.ts";

/** A relay to each broker, and from the broker through the inbox. */
export async function compareBrokers(sides: Sides): Promise<void> {
  await withBrokers(sides.context, (name, address) => compareBroker(sides, name, address));
}

async function compareBroker(sides: Sides, name: BrokerName, address: string): Promise<void> {
  const { context } = sides;
  const size = context.quick ? "quick" : "full";
  const [published, consumed] = [PUBLISHED[name][size], CONSUMED[size]];
  const players = new Map<Side, Player>();
  for (const side of [sides.this, sides.older]) {
    const player = side.player("broker-txbox", await context.database(), name, address);
    players.set(side, player);
    await player.setup();
    await player.fill(published);
  }
  context.say(`brokers: ${name}, publishing`);
  const publishing = context.quick ? { count: 8, budgetMs: 8000 } : { count: 16, budgetMs: 90_000 };
  const relay = `${name}_relay`;
  await compare(sides, publishing, { [relay]: { unit: "msg/s" } }, async (side) => {
    const measure = async (): Promise<Record<string, number>> => {
      const { handled, left, ms } = await players.get(side)!.drain({ messages: published });
      mustEqual(`${relay} of ${side.name}, messages that arrived`, handled, published);
      mustEqual(`${relay} of ${side.name}, messages left`, left, 0);
      return { [relay]: (published * 1000) / ms };
    };
    for (let round = 0; round < WARM_UPS; round += 1) await measure();
    return measure;
  });

  context.say(`brokers: ${name}, consuming`);
  const consuming = context.quick ? { count: 8, budgetMs: 8000 } : { count: 12, budgetMs: 90_000 };
  const inbox = `${name}_inbox`;
  await compare(sides, consuming, { [inbox]: { unit: "msg/s" } }, async (side) => {
    const measure = async (): Promise<Record<string, number>> => {
      const { unread, ms } = await players.get(side)!.consume(consumed);
      mustEqual(`${inbox} of ${side.name}, messages not acknowledged`, unread, 0);
      return { [inbox]: (consumed * 1000) / ms };
    };
    await measure();
    return measure;
  });
}
