import { TxboxError } from "../../core/errors.ts";
import { rejectUnknownOptions } from "../../core/options.ts";
import type { RabbitmqChannel } from "./rabbitmq-client.ts";
import { deletedMeanwhile, missingExchange, missingQueue, topologyError } from "./rabbitmq-errors.ts";

/** What a subscriber creates when it starts, unless it is there already. */
export interface RabbitmqDeclaration {
  /** Routing keys by exchange, which is created as a durable topic exchange: `{ orders: "order.#" }`. */
  bind?: Readonly<Record<string, string | readonly string[]>>;
  /** Default "quorum". */
  queueType?: "quorum" | "classic";
  /** One subscriber at a time has the queue, the others stand by: keeps the order of keys. Default true. */
  singleActiveConsumer?: boolean;
  /** More arguments of the queue, such as `x-max-length`. */
  arguments?: Readonly<Record<string, unknown>>;
}

/** Where dead letters go: a queue, or an exchange with a routing key (default: the one the message came with). */
export type RabbitmqDeadLetter = string | { exchange: string; routingKey?: string };

export interface Topology {
  readonly queue: string;
  readonly deadLetter: { readonly exchange: string; readonly routingKey: string | undefined };
  /** Undefined: everything must be there. */
  readonly declaration: RabbitmqDeclaration | undefined;
}

export function topologyOf(
  of: string,
  queue: string,
  deadLetter: RabbitmqDeadLetter = `${queue}.dead`,
  declare: boolean | RabbitmqDeclaration = false,
): Topology {
  const named = typeof deadLetter === "string" ? { exchange: "", routingKey: deadLetter } : deadLetter;
  if (typeof named?.exchange !== "string" || (named.exchange === "" && !named.routingKey)) {
    throw new TxboxError("invalid_option", `${of}: deadLetter names neither a queue nor an exchange`, {
      field: "deadLetter",
      fix: 'Pass the name of a queue, or { exchange: "…" }',
    });
  }
  const declaration = declare === true ? {} : declare === false ? undefined : declare;
  if (declaration !== undefined) {
    rejectUnknownOptions(`${of} declare`, declaration, ["bind", "queueType", "singleActiveConsumer", "arguments"]);
  }
  return {
    queue,
    deadLetter: { exchange: named.exchange, routingKey: named.routingKey },
    declaration,
  };
}

/** Creates what is missing, or finds that something is: the error names it and the option that creates it. */
export async function prepareTopology(channel: RabbitmqChannel, topology: Topology): Promise<void> {
  const { queue, deadLetter, declaration } = topology;
  if (declaration === undefined) {
    await findQueue(channel, queue, "queue");
    await findDeadLetter(channel, deadLetter);
    return;
  }
  const { bind: bindings = {}, queueType = "quorum", singleActiveConsumer = true, arguments: more } = declaration;
  const { exchange, routingKey } = deadLetter;
  if (exchange !== "") await createExchange(channel, exchange);
  else await createQueue(channel, String(routingKey), { "x-queue-type": queueType });
  await createQueue(channel, queue, {
    "x-queue-type": queueType,
    ...(singleActiveConsumer ? { "x-single-active-consumer": true } : {}),
    // What the server itself expels, by a limit or a time to live, goes the same way.
    "x-dead-letter-exchange": exchange,
    ...(routingKey === undefined ? {} : { "x-dead-letter-routing-key": routingKey }),
    ...more,
  });
  for (const [source, patterns] of Object.entries(bindings)) {
    await createExchange(channel, source);
    for (const pattern of [patterns].flat()) await bind(channel, queue, source, pattern);
  }
}

async function findDeadLetter(
  channel: RabbitmqChannel,
  { exchange, routingKey }: Topology["deadLetter"],
): Promise<void> {
  if (exchange === "") return findQueue(channel, String(routingKey), "deadLetter");
  try {
    await channel.checkExchange(exchange);
  } catch (error) {
    const fix = "Create it, or set declare: true on the subscriber";
    throw topologyError(error, `the exchange "${exchange}"`, () => missingExchange(exchange, fix, error));
  }
}

async function findQueue(channel: RabbitmqChannel, queue: string, field: "queue" | "deadLetter"): Promise<void> {
  try {
    await channel.checkQueue(queue);
  } catch (error) {
    throw topologyError(error, `the queue "${queue}"`, () => missingQueue(queue, field, error));
  }
}

async function createQueue(
  channel: RabbitmqChannel,
  queue: string,
  queueArguments: Record<string, unknown>,
): Promise<void> {
  try {
    await channel.assertQueue(queue, { durable: true, arguments: queueArguments });
  } catch (error) {
    const what = `the queue "${queue}"`;
    throw topologyError(error, what, () => deletedMeanwhile(what, error));
  }
}

async function createExchange(channel: RabbitmqChannel, exchange: string): Promise<void> {
  try {
    await channel.assertExchange(exchange, "topic", { durable: true });
  } catch (error) {
    const what = `the exchange "${exchange}"`;
    throw topologyError(error, what, () => deletedMeanwhile(what, error));
  }
}

async function bind(channel: RabbitmqChannel, queue: string, source: string, pattern: string): Promise<void> {
  try {
    await channel.bindQueue(queue, source, pattern);
  } catch (error) {
    const what = `the binding of "${queue}" to "${source}"`;
    throw topologyError(error, what, () => deletedMeanwhile(`"${queue}" or "${source}"`, error));
  }
}
