import {
  BatchResults,
  bytesOf,
  createPublisher,
  createSubscriber,
  deadHeaders,
  deadLetterName,
  decodeEnvelope,
  Deliveries,
  encodeEnvelope,
  ENVELOPE_OPTIONS,
  givenUp,
  groupByKey,
  invalidOption,
  LATE,
  milliseconds,
  orderOf,
  readOptions,
  required,
  settledWithin,
  SUBSCRIBER_OPTIONS,
  SubscriberOutage,
  subscriberSettings,
  text,
  type Delivery,
  type EnvelopeOptions,
  type Fields,
  type OptionSpecs,
  type SubscriberOptions,
  type Transport,
} from "../../../../src/adapter/index.ts";
import type { IncomingMessage, Publisher, PublishResult, Subscriber } from "../../../../src/index.ts";
import { PermanentError, UnavailableError } from "../../../../src/index.ts";
import { MAX_BYTES, MAX_ENTRIES, type AcmeEntry, type AcmeReceived, type AcmeServer } from "./acme-server.ts";

/** As an outsider would write it, by docs/writing-an-adapter.md. */
const TRANSPORT: Transport = { cloudEventPrefixes: ["ce-"], asciiOnly: false };

export interface AcmePublisherOptions extends EnvelopeOptions {
  client: AcmeServer;
  timeoutMs?: number;
}

const requireAcme = (of: string, value: unknown): AcmeServer => {
  if (typeof value === "object" && value !== null) return value as AcmeServer;
  throw invalidOption(of, "client", "it needs a client", "Pass { client }");
};

const PUBLISHER = {
  ...ENVELOPE_OPTIONS,
  client: required(requireAcme),
  timeoutMs: milliseconds(2000),
} satisfies OptionSpecs<AcmePublisherOptions>;

export function createAcmePublisher(options: AcmePublisherOptions): Publisher {
  const { client, envelope, source, timeoutMs } = readOptions("createAcmePublisher", options, PUBLISHER);
  return createPublisher({
    keepsKeyOrder: true,
    async publish({ messages, signal, mayBegin }) {
      const results = new BatchResults(messages);
      let groups = groupByKey(messages);
      while (groups.length > 0) {
        for (const [queue, heads] of Map.groupBy(groups, ([first]) => messages[first!]!.stream)) {
          for (let from = 0; from < heads.length; from += MAX_ENTRIES) {
            const places = heads.slice(from, from + MAX_ENTRIES).map((group) => group[0]!);
            if (!mayBegin()) return results.all();
            const entries = places.map((place): AcmeEntry => {
              const message = messages[place]!;
              const attributes = JSON.stringify(encodeEnvelope(message, envelope, TRANSPORT, source));
              return { body: bytesOf(message.body), attributes, group: orderOf(message) };
            });
            const answer = await settledWithin(client.send(queue, entries), timeoutMs, signal);
            if (typeof answer === "symbol") {
              const error = answer === LATE ? new UnavailableError(`No answer for ${timeoutMs} ms`) : givenUp(signal);
              return results.all({ status: "unavailable", error });
            }
            for (const [n, place] of places.entries()) results.set(place, resultOf(answer[n]!));
          }
        }
        groups = groups.map((group) => group.slice(1)).filter(([next]) => next !== undefined && results.isOpen(next));
      }
      return results.all();
    },
  });
}

function resultOf(answer: "taken" | "refused" | "never"): PublishResult {
  if (answer === "taken") return { status: "published" };
  if (answer === "refused") return { status: "failed", error: new Error("Acme refused it") };
  return { status: "rejected", error: new PermanentError("Acme will never take it") };
}

export interface AcmeSubscriberOptions extends SubscriberOptions {
  client: AcmeServer;
  queue: string;
  deadLetter?: string | ((queue: string) => string);
  invisibleMs?: number;
}

const SUBSCRIBER = {
  ...SUBSCRIBER_OPTIONS,
  client: required(requireAcme),
  queue: text('Pass queue: "orders"'),
  deadLetter: deadLetterName,
  invisibleMs: milliseconds(30_000, 100),
} satisfies OptionSpecs<AcmeSubscriberOptions>;

export function createAcmeSubscriber(options: AcmeSubscriberOptions): Subscriber {
  const read = readOptions("createAcmeSubscriber", options, SUBSCRIBER);
  const { client, queue, invisibleMs } = read;
  const settings = subscriberSettings(read);
  return createSubscriber(async (consumer, handle) => {
    const dead = read.deadLetter(queue);
    for (const name of [queue, dead]) {
      if (!client.exists(name)) throw invalidOption("createAcmeSubscriber", "queue", `no queue ${name}`, "Create it");
    }
    const deliveries = new Deliveries(consumer, handle, settings);
    const outage = new SubscriberOutage(consumer, settings);
    const stopping = new AbortController();
    const held = new Map<string, AbortController>();
    const renewing = setInterval(() => {
      for (const [receipt, lost] of held) if (!hide(receipt, invisibleMs)) lost.abort();
    }, invisibleMs / 3);

    function hide(receipt: string, forMs: number): boolean {
      try {
        return client.hide(queue, receipt, forMs);
      } catch {
        return false;
      }
    }

    function deliveryOf(received: AcmeReceived): Delivery {
      const { receipt, receiveCount } = received;
      const lost = new AbortController();
      held.set(receipt, lost);
      const done = (): void => {
        held.delete(receipt);
        client.delete(queue, receipt);
      };
      return {
        ...opened(received, queue),
        attempts: receiveCount - 1,
        signal: lost.signal,
        done,
        async moveToDeadLetters(error, attempts) {
          const attributes = { ...fieldsOf(received), ...deadHeaders(consumer, error, attempts) };
          const [answer] = await client.send(dead, [{ ...received, attributes: JSON.stringify(attributes) }]);
          if (answer !== "taken") throw new UnavailableError(`The queue ${dead} does not take a dead letter`);
          done();
        },
        release() {
          held.delete(receipt);
          hide(receipt, 0);
        },
      };
    }

    const loop = (async () => {
      while (!stopping.signal.aborted) {
        try {
          await deliveries.room();
          if (stopping.signal.aborted) break;
          // Sizes are not known beforehand: one at a time, as long as bytes are scarce.
          const scarce = settings.prefetchBytes - deliveries.bytes < MAX_ENTRIES * MAX_BYTES;
          const count = scarce ? 1 : settings.prefetch - deliveries.inHand;
          const got = await client.receive(queue, count, invisibleMs);
          outage.over();
          for (const one of got) deliveries.take(deliveryOf(one));
        } catch (error) {
          if (!stopping.signal.aborted) await outage.waitOut(error, stopping.signal);
        }
      }
    })();
    return {
      async stop() {
        stopping.abort();
        await deliveries.stop();
        await loop;
        for (const receipt of held.keys()) hide(receipt, 0);
        clearInterval(renewing);
      },
    };
  });
}

function fieldsOf({ attributes }: AcmeEntry): Fields {
  return attributes === undefined ? {} : (JSON.parse(attributes) as Fields);
}

export function openEntry(entry: AcmeEntry, queue: string): IncomingMessage {
  return { ...decodeEnvelope(fieldsOf(entry), entry.body, TRANSPORT), source: queue };
}

function opened(entry: AcmeEntry, queue: string): Pick<Delivery, "message" | "broken"> {
  try {
    return { message: openEntry(entry, queue) };
  } catch (broken) {
    return { message: { body: entry.body, headers: {} }, broken };
  }
}
