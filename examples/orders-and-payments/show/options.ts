import { parseArgs } from "node:util";
import { BROKERS, type BrokerName } from "../open-broker.ts";

export interface ShowOptions {
  broker: BrokerName;
  chaos: boolean;
  /** Messages of a simulated outage; 0: another show. */
  backlog: number;
  seconds: number;
  /** Orders per second, of all customers together. */
  rate: number;
  seed: number;
  json: string | undefined;
  keep: boolean;
  verbose: boolean;
}

const HELP = `npm run example:orders -- [options]

An order service, a payment service and two relays, each a process with a database of its own, and a broker between
them. Orders are placed; in the end there must be one payment for each. Exits with 0 only if that is so.

  --broker NAME   ${BROKERS.join(", ")} (default ${BROKERS[0]})
  --seconds N     how long orders are placed (default 5; with --chaos 20)
  --rate N        orders per second (default 40)
  --chaos         kill services, relays and the broker meanwhile, and measure how many orders are taken without a broker
  --seed N        seed of all random decisions (default: the time)
  --backlog N     instead: N messages are written while the broker is down (500000: two hours of 70 per second), then
                  it comes back, and they must arrive in order
  --json FILE     write the result to a file
  --keep          go on until Ctrl-C, for you to place orders
  --verbose       print what the processes say
  --help          this text
`;

/** Undefined when only the help was asked for. Throws for what cannot be. */
export function showOptions(args: readonly string[]): ShowOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      broker: { type: "string", default: BROKERS[0] },
      seconds: { type: "string" },
      rate: { type: "string", default: "40" },
      chaos: { type: "boolean", default: false },
      seed: { type: "string", default: String(Date.now() % 1_000_000) },
      backlog: { type: "string", default: "0" },
      json: { type: "string" },
      keep: { type: "boolean", default: false },
      verbose: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(HELP);
    return undefined;
  }
  const { chaos, json, keep, verbose } = values;
  const broker = BROKERS.find((name) => name === values.broker);
  if (broker === undefined) throw new Error(`--broker must be one of ${BROKERS.join(", ")}, got ${values.broker}`);
  const backlog = wholeNumber("backlog", values.backlog, 0);
  if (backlog > 0 && (chaos || keep)) throw new Error("--backlog is a show of its own: without --chaos and --keep");
  return {
    broker,
    chaos,
    backlog,
    seconds: wholeNumber("seconds", values.seconds ?? (chaos ? "20" : "5"), 1),
    rate: wholeNumber("rate", values.rate, 1),
    seed: wholeNumber("seed", values.seed, 0),
    json,
    keep,
    verbose,
  };
}

function wholeNumber(name: string, text: string, min: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < min)
    throw new Error(`--${name} must be a whole number from ${min} on, got ${text}`);
  return value;
}
