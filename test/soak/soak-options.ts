import { parseArgs } from "node:util";

export interface SoakOptions {
  store: string;
  /** How relays get new messages, where the store has more than one way. */
  source: string | undefined;
  seconds: number;
  seed: number;
  /** Where the result goes, as JSON. */
  json: string | undefined;
  drainSeconds: number;
  verbose: boolean;
}

const HELP = `npm run soak -- [options]

Writers, relays, consumers and a database that get killed and paused at random; afterwards every committed message must
have had its effect once and in order. Exits with 1 when one was lost, doubled, reordered or never committed.

  --store NAME       postgres (default) or mongodb
  --source NAME      how relays get new messages: polling (default) or stream; with postgres, wal says the same
  --seconds N        how long to write and kill (default 20)
  --seed S           seed of all random decisions (default: the time)
  --json FILE        write the result to a file
  --drain-seconds N  how long the rest may take to arrive afterwards (default 60)
  --verbose          print what the processes say
  --help             this text
`;

/** Undefined when only the help was asked for. */
export function soakOptions(args: readonly string[]): SoakOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      store: { type: "string", default: "postgres" },
      source: { type: "string" },
      seconds: { type: "string", default: "20" },
      seed: { type: "string", default: String(Date.now() % 1_000_000) },
      json: { type: "string" },
      "drain-seconds": { type: "string", default: "60" },
      verbose: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(HELP);
    return undefined;
  }
  return {
    store: values.store,
    source: values.source,
    seconds: wholeNumber("seconds", values.seconds),
    seed: wholeNumber("seed", values.seed),
    json: values.json,
    drainSeconds: wholeNumber("drain-seconds", values["drain-seconds"]),
    verbose: values.verbose,
  };
}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new Error(`--${name} must be a whole number, got ${text}`);
  return value;
}
