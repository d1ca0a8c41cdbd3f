import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import { ChannelKeeper } from "../../../src/brokers/rabbitmq/channel-keeper.ts";
import type { ConfirmedChannel } from "../../../src/brokers/rabbitmq/confirmed-channel.ts";
import type { RabbitmqConnection } from "../../../src/brokers/rabbitmq/rabbitmq-client.ts";
import { RabbitmqLink } from "../../../src/brokers/rabbitmq/rabbitmq-link.ts";
import type { Clock } from "../../../src/core/contracts.ts";

const never = new AbortController().signal;

/** A connection whose channels refuse every message, as one does that lost sight of the leader of a queue. */
function refusing() {
  let now = 0;
  let open = 0;
  const clock: Clock = { monotonic: () => now, sleep: () => new Promise(() => undefined) };
  const createConfirmChannel = async () => {
    open++;
    const channel = Object.assign(new EventEmitter(), {
      publish: (...args: unknown[]) => (args.at(-1) as (error: unknown) => void)(new Error("nacked")),
      close: async () => {
        open--;
        channel.emit("close");
      },
    });
    return channel;
  };
  const connection = Object.assign(new EventEmitter(), { createConfirmChannel });
  const keeper = new ChannelKeeper(RabbitmqLink.of(connection as unknown as RabbitmqConnection), clock);
  const refuse = (channel: ConfirmedChannel): void =>
    channel.send("", "queue", Buffer.alloc(0), {}, (confirm) => expect(confirm).toBe("refused"));
  return { keeper, refuse, openChannels: () => open, later: (ms: number) => (now += ms) };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

describe("the channel of a publisher", () => {
  test("stays the same while nothing is refused", async () => {
    const { keeper } = refusing();
    const first = await keeper.get(never);
    keeper.release(first);
    expect(await keeper.get(never)).toBe(first);
  });

  test("is replaced after it has refused a message, and closed", async () => {
    const { keeper, refuse, openChannels } = refusing();
    const first = await keeper.get(never);
    refuse(first);
    keeper.release(first);
    await settled();
    expect(first.ended).toBe(true);
    expect(await keeper.get(never)).not.toBe(first);
    expect(openChannels()).toBe(1);
  });

  test("is closed only when the last who uses it is done", async () => {
    const { keeper, refuse } = refusing();
    const first = await keeper.get(never);
    expect(await keeper.get(never)).toBe(first);
    refuse(first);
    keeper.release(first);
    await settled();
    expect(first.ended).toBe(false);
    expect(await keeper.get(never)).not.toBe(first);
    keeper.release(first);
    await settled();
    expect(first.ended).toBe(true);
  });

  test("is replaced once a second, however much is refused", async () => {
    const { keeper, refuse, later } = refusing();
    const use = async () => {
      const channel = await keeper.get(never);
      refuse(channel);
      keeper.release(channel);
      return channel;
    };
    await use();
    const second = await use();
    later(999);
    expect(await use()).toBe(second);
    later(1);
    expect(await use()).toBe(second);
    expect(await use()).not.toBe(second);
  });
});
