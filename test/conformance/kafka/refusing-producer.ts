import type { KafkaProducer, KafkaSendOptions } from "../../../src/brokers/kafka/index.ts";

const CODES = { failed: -1, rejected: 87 };
const NOT_ENOUGH_REPLICAS = 19;

/**
 * A producer whose broker refuses certain messages, as Kafka does it: with the whole record batch of the partition.
 * Who is to fail once fails until it was refused by itself. A topic can lack replicas, as only a cluster's can.
 */
export class RefusingProducer implements KafkaProducer {
  readonly #real: KafkaProducer;
  readonly #refused = new Map<string, "failed" | "rejected">();

  /** Topics that lack replicas. */
  readonly lame = new Set<string>();

  constructor(real: KafkaProducer) {
    this.#real = real;
  }

  refuse(id: string, how: "failed" | "rejected"): void {
    this.#refused.set(id, how);
  }

  metadata: KafkaProducer["metadata"] = (options) => this.#real.metadata(options);

  close: KafkaProducer["close"] = () => this.#real.close();

  async send(options: KafkaSendOptions): Promise<unknown> {
    const codes = new Map<string, number>();
    for (const message of options.messages) {
      if (this.lame.has(message.topic)) codes.set(placeOf(message), NOT_ENOUGH_REPLICAS);
      const id = [...(message.headers ?? [])].find(([name]) => /^(?:txbox-|ce_)id$/.test(name.toString()))?.[1];
      const how = this.#refused.get(id?.toString() ?? "");
      if (how === undefined) continue;
      codes.set(placeOf(message), CODES[how]);
      const alone = options.messages.filter((one) => placeOf(one) === placeOf(message)).length === 1;
      if (alone && how === "failed") this.#refused.delete(id?.toString() ?? "");
    }
    const fine = options.messages.filter((message) => !codes.has(placeOf(message)));
    if (fine.length > 0) await this.#real.send({ ...options, messages: fine });
    if (codes.size === 0) return undefined;
    const places = new Set(options.messages.map(placeOf));
    const responses = [...places].map((place) => {
      const [name = "", partition] = place.split("|");
      return { name, partitionResponses: [{ index: Number(partition), errorCode: codes.get(place) ?? 0 }] };
    });
    throw Object.assign(new Error("Producing messages failed."), {
      errors: [Object.assign(new Error("Received response with error"), { response: { responses } })],
    });
  }
}

function placeOf({ topic, partition }: KafkaSendOptions["messages"][number]): string {
  return `${topic}|${partition}`;
}
