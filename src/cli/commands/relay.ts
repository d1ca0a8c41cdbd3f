import type { Publisher, Store } from "../../core/contracts.ts";
import type { RelayEvent } from "../../core/events.ts";
import type { RelayOptions } from "../../relay/relay-options.ts";
import { createRelay, type DrainOptions, type DrainResult, type Relay } from "../../relay/relay.ts";
import type { CliContext } from "../cli-context.ts";
import { configCall } from "../config-call.ts";
import { defineCommand, type Command } from "../command.ts";
import type { RelayConfig } from "../../config/define-config.ts";
import { EXIT } from "../exit-code.ts";
import { plural } from "../format-values.ts";
import type { LoadedConfig } from "../load-config.ts";
import { suggestion } from "../parse-flags.ts";
import { MAX_AGE_MS, metricsOf } from "../relay-metrics.ts";
import { RelayReporter } from "../relay-reporter.ts";
import { createStdoutPublisher } from "../stdout-publisher.ts";
import { stopSignal } from "../stop-signal.ts";
import { refuseFlags } from "../subcommand.ts";
import { UsageError } from "../usage-error.ts";
import { LATE, within } from "../within.ts";

const STOP_DEADLINE_MS = 10_000;
const DRAIN_DEADLINE_MS = 60_000;

export const relayCommand: Command = defineCommand({
  name: "relay",
  summary: "publish messages until told to stop, or once",
  usage: ["relay [NAME…] [--all]", "relay [NAME…] --once [--deadline-ms N] [--max N]", "relay NAME --publisher stdout"],
  about:
    "Runs the relays of the configuration by name; with a single one there, NAME may be left out. Any number of processes may run\n" +
    "the same relay: they share its work. SIGTERM or SIGINT stops it cleanly; a second signal ends it at once. While it runs it\n" +
    "survives restarts of the database and the broker by itself.\n" +
    "A relay keeps its place in the log, and so its messages, until it is dropped: `txbox relays drop NAME`.",
  words: true,
  flags: {
    all: { kind: "switch", help: "every relay of the configuration, in this process" },
    publisher: { kind: "text", choices: ["stdout"], help: "instead of the configured one: print messages as NDJSON" },
    once: { kind: "switch", help: "publish what is there now and end, for cron" },
    "deadline-ms": {
      kind: "integer",
      min: 1,
      help: `--once: take no new messages after this time (default ${DRAIN_DEADLINE_MS})`,
    },
    max: { kind: "integer", min: 1, help: "--once: end after about this many messages" },
    "stop-deadline-ms": { kind: "integer", min: 1, help: `time for a clean stop (default ${STOP_DEADLINE_MS})` },
    streams: { kind: "list", help: "only these streams; fixed when the relay is first started" },
    start: { kind: "text", choices: ["earliest", "now"], help: "where a new relay begins (default earliest)" },
    "batch-size": { kind: "integer", min: 1, help: "messages read, published and settled together (default 1000)" },
    "max-attempts": { kind: "integer", min: 1, help: "failed attempts until a message is dead (default 10)" },
    "lease-ms": {
      kind: "integer",
      min: 500,
      help: "a process that dies frees its work after this time (default 30000)",
    },
    metrics: { kind: "text", value: "HOST:PORT", help: "serve /metrics, /healthz and /readyz there" },
    "max-age-ms": {
      kind: "integer",
      min: 1,
      help: `--metrics: not ready when the oldest message has waited longer (default ${MAX_AGE_MS})`,
    },
    "no-maintenance": { kind: "switch", help: "leave rotation and retention to others" },
  },
  examples: [
    ["relay to-rabbit", "as a service, under systemd or in a container"],
    ["relay to-rabbit --once --deadline-ms 50000", "from cron"],
    ["relay to-rabbit --metrics 127.0.0.1:9464", "with metrics for Prometheus and probes for health"],
    ["relay look --publisher stdout --start now", "watch what is enqueued from now on"],
  ],
  async run(context, args) {
    const { flags } = args;
    if (flags.once !== true) refuseFlags("relay", flags, ["deadline-ms", "max"], "--once");
    if (flags.metrics === undefined) refuseFlags("relay", flags, ["max-age-ms"], "--metrics");
    const metrics = await metricsOf(flags, context);
    const loaded = await context.loadConfig();
    const names = relayNames(args, loaded);
    const { store, where } = await context.open();
    const reporter = new RelayReporter(context.output);
    try {
      const failed = Promise.withResolvers<string>();
      const onEvent = (event: RelayEvent): void => {
        reporter.report(event);
        if (event.type === "failed") failed.resolve(event.error);
      };
      const relays: Running[] = [];
      for (const name of names) relays.push(await buildRelay({ name, store, loaded, flags, onEvent, context }));
      const stop = { reporter, stopMs: flags["stop-deadline-ms"] ?? STOP_DEADLINE_MS };
      if (flags.once === true) return await drain(context, relays, flags, stop);
      using server = metrics?.serverFor(
        store,
        relays.map(({ relay }) => relay),
      );
      await server?.listenSoon();
      return await runUntilStopped(context, relays, { where, failed: failed.promise, ...stop });
    } finally {
      metrics?.end();
      // A single run ends with its totals.
      reporter.end({ tell: flags.once !== true });
    }
  },
});

interface RelayFlags {
  readonly all?: boolean;
  readonly publisher?: string;
  readonly "deadline-ms"?: number;
  readonly max?: number;
  readonly streams?: readonly string[];
  readonly start?: string;
  readonly "batch-size"?: number;
  readonly "max-attempts"?: number;
  readonly "lease-ms"?: number;
  readonly "no-maintenance"?: boolean;
}

interface Running {
  readonly name: string;
  readonly relay: Relay;
  /** Closes its publishers, which a single run leaves open. */
  readonly close: () => Promise<unknown>;
}

function relayNames(
  { flags, positionals }: { flags: RelayFlags; positionals: readonly string[] },
  { config, file }: LoadedConfig,
): readonly string[] {
  const configured = Object.keys(config.relays ?? {});
  const twice = positionals.find((name, i) => positionals.indexOf(name) !== i);
  const fail = (message: string): never => {
    throw new UsageError(message, { command: "relay" });
  };
  if (twice !== undefined) fail(`"${twice}" is named twice`);
  if (flags.all === true) {
    if (positionals.length > 0) fail("Give names or --all, not both");
    return configured.length > 0 ? configured : fail("The configuration has no relays");
  }
  if (flags.publisher !== undefined)
    return positionals.length > 0 ? positionals : fail("Give the relay a name: txbox relay NAME --publisher stdout");
  for (const name of positionals) {
    if (configured.includes(name)) continue;
    if (file === undefined)
      fail(`Where should "${name}" publish? Describe it in txbox.config.ts, or try --publisher stdout`);
    fail(
      `The configuration has no relay "${name}". ${configured.length === 0 ? "It has none" : suggestion(name, configured)}`,
    );
  }
  if (positionals.length > 0) return positionals;
  if (configured.length === 1) return configured;
  return fail(
    configured.length === 0
      ? "Which relay? Describe one in txbox.config.ts, or try: txbox relay NAME --publisher stdout"
      : `Which relay? ${configured.join(", ")}, or --all`,
  );
}

interface BuildOptions {
  readonly name: string;
  readonly store: Store;
  readonly loaded: LoadedConfig;
  readonly flags: RelayFlags;
  readonly onEvent: (event: RelayEvent) => void;
  readonly context: CliContext;
}

async function buildRelay({ name, store, loaded, flags, onEvent, context }: BuildOptions): Promise<Running> {
  const {
    publisher: configured,
    deadLetters: forDead,
    onEvent: hook,
    ...options
  }: Partial<RelayConfig> = loaded.config.relays?.[name] ?? {};
  const made = (field: string, publisher: RelayConfig["publisher"] | undefined): Promise<Publisher | undefined> =>
    madePublisher(context, `relays.${name}.${field}()`, publisher);
  const publisher =
    flags.publisher === "stdout" ? createStdoutPublisher(context.output) : await made("publisher", configured);
  if (publisher === undefined) throw new UsageError(`Relay "${name}" has no publisher`, { command: "relay" });
  const deadLetters = await made("deadLetters", forDead);
  const relay = createRelay({
    ...options,
    ...(deadLetters === undefined ? {} : { deadLetters }),
    ...overrides(flags),
    store,
    name,
    publisher,
    onEvent: (event) => {
      onEvent(event);
      hook?.(event);
    },
  });
  const close = () => Promise.all([publisher.close?.(), deadLetters?.close?.()]);
  return { name, relay, close };
}

/** A publisher of the configuration, made now if it is a function. */
export async function madePublisher(
  context: CliContext,
  what: string,
  publisher: RelayConfig["publisher"] | undefined,
): Promise<Publisher | undefined> {
  return typeof publisher === "function" ? configCall(what, context.configDeadlineMs, publisher) : publisher;
}

function overrides(flags: RelayFlags): Partial<RelayOptions> {
  const { streams, start } = flags;
  return {
    ...(streams === undefined ? {} : { streams }),
    ...(start === undefined ? {} : { start: start as "earliest" | "now" }),
    ...(flags["batch-size"] === undefined ? {} : { batchSize: flags["batch-size"] }),
    ...(flags["max-attempts"] === undefined ? {} : { maxAttempts: flags["max-attempts"] }),
    ...(flags["lease-ms"] === undefined ? {} : { leaseMs: flags["lease-ms"] }),
    ...(flags["no-maintenance"] === true ? { maintenance: false } : {}),
  };
}

interface StopOptions {
  readonly reporter: RelayReporter;
  readonly stopMs: number;
}

interface RunOptions extends StopOptions {
  readonly where: string;
  readonly failed: Promise<string>;
}

/** What a relay takes after its deadline, to give its lanes back and close its publishers, at most. */
const GOODBYE_MS = 3000;

async function runUntilStopped(
  { output }: CliContext,
  relays: readonly Running[],
  { where, failed, reporter, stopMs }: RunOptions,
): Promise<number> {
  const told = toldToStop();
  const started = (async () => {
    for (const { relay } of relays) await relay.start();
    if (!output.json) output.note(`Publishing from ${where}. Ctrl+C stops it.`);
  })();
  started.catch(() => undefined);
  // A database that does not answer must not keep a process that was told to stop.
  await Promise.race([started, told]);
  const error = await Promise.race([told.then(() => undefined), failed]);
  reporter.stopping(stopMs);
  const begunAt = performance.now();
  const stopped = await within(
    stopMs + GOODBYE_MS,
    Promise.all(relays.map(({ relay }) => relay.stop({ deadlineMs: stopMs }))),
  );
  if (stopped === LATE || performance.now() - begunAt >= stopMs) {
    output.note(`The stop took longer than ${stopMs} ms; messages in hand go out again elsewhere.`);
    return EXIT.failed;
  }
  return error === undefined ? EXIT.ok : EXIT.failed;
}

async function drain(
  { output }: CliContext,
  relays: readonly Running[],
  flags: RelayFlags,
  stop: StopOptions,
): Promise<number> {
  const { "deadline-ms": deadlineMs = DRAIN_DEADLINE_MS, max } = flags;
  const limits = { deadlineMs, ...(max === undefined ? {} : { max }) };
  const told = toldToStop();
  let stopping = false;
  void told.then(() => (stopping = true));
  for (const { name, relay, close } of relays) {
    if (stopping) break;
    const drained = await drainInTime(relay, limits, told, stop);
    await within(GOODBYE_MS, close());
    if (drained === LATE) {
      output.note(`The end of ${name} took longer than ${stop.stopMs} ms; messages in hand go out again.`);
      return EXIT.failed;
    }
    const { published, retried, dead } = drained;
    if (output.json)
      output.line({ at: new Date().toISOString(), type: "drained", relay: name, published, retried, dead });
    else output.note(`${name}: published ${plural(published, "message")}, ${retried} to be retried, ${dead} dead`);
  }
  return EXIT.ok;
}

/** The totals; LATE when what was in hand at the end of the time, or when told to stop, did not end by the stop deadline. */
async function drainInTime(
  relay: Relay,
  limits: DrainOptions & { readonly deadlineMs: number },
  told: Promise<void>,
  { reporter, stopMs }: StopOptions,
): Promise<DrainResult | typeof LATE> {
  const work = relay.drainOnce(limits);
  const first = await within(limits.deadlineMs, Promise.race([work, told.then((): typeof LATE => LATE)]));
  if (first !== LATE) return first;
  reporter.stopping(stopMs);
  const both = await within(stopMs + GOODBYE_MS, Promise.all([work, relay.stop({ deadlineMs: stopMs })]));
  return both === LATE ? LATE : both[0];
}

/** By a signal, or because the reader of the output has gone. */
function toldToStop(): Promise<void> {
  const signal = stopSignal();
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
    process.stdout.once("error", () => resolve());
  });
}
