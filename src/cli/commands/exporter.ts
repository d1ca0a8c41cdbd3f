import { diagnose } from "../../doctor/diagnose.ts";
import { createHealth } from "../../observability/health.ts";
import { collectDiagnosis, collectFigures } from "../../observability/prometheus/index.ts";
import { defineCommand, type Command } from "../command.ts";
import { explainFailure } from "../explain-failure.ts";
import { EXIT } from "../exit-code.ts";
import { importPrometheus } from "../import-driver.ts";
import { listenAddress } from "../listen-address.ts";
import { MetricsServer } from "../metrics-server.ts";
import { stopSignal } from "../stop-signal.ts";

const LISTEN = "127.0.0.1:9465";
const EVERY_S = 5;

export const exporterCommand: Command = defineCommand({
  name: "exporter",
  summary: "figures of the store for Prometheus: backlog, lag, dead letters, findings of the doctor",
  usage: ["exporter [--listen HOST:PORT] [--every SECONDS]"],
  about:
    "Serves what the database knows, whichever processes run: so it tells the lag also when no relay is alive. Run one for each\n" +
    "database. What a relay process counts by itself comes from `txbox relay --metrics`. While the database is away, txbox_up is 0.",
  flags: {
    listen: { kind: "text", value: "HOST:PORT", help: `where to serve (default ${LISTEN})` },
    every: {
      kind: "seconds",
      fallback: EVERY_S,
      help: `scrapes within this time share one look at the database (default ${EVERY_S})`,
    },
  },
  examples: [
    ["exporter", "for a Prometheus on the same machine"],
    ["exporter --listen 0.0.0.0:9465", "in a container"],
  ],
  async run(context, { flags }) {
    const { output } = context;
    const address = listenAddress("--listen", flags.listen ?? LISTEN, "exporter");
    const client = await importPrometheus(context.cwd);
    const { store, where } = await context.open();
    const registry = new client.Registry();
    const tell = (error: unknown): void =>
      output.note(`${new Date().toISOString()} no figures: ${explainFailure(error, where).message}`);
    collectFigures({ client, registry, store, everyMs: (flags.every ?? EVERY_S) * 1000, onError: tell });
    collectDiagnosis({ client, registry, diagnose: () => diagnose(store), onError: tell });
    // Whether messages wait is for alerts to judge; the exporter is ready when it can tell.
    const health = createHealth({ store, maxAgeMs: Number.MAX_SAFE_INTEGER });
    using server = new MetricsServer({ address, registry, health, output });
    const stop = stopSignal();
    await server.listen();
    await new Promise<void>((resolve) => {
      if (stop.aborted) resolve();
      stop.addEventListener("abort", () => resolve(), { once: true });
    });
    return EXIT.ok;
  },
});
