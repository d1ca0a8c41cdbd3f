import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describeError, errorCode } from "../core/errors.ts";
import type { Health } from "../observability/health.ts";
import type { PrometheusRegistry } from "../observability/prometheus/index.ts";
import type { ListenAddress } from "./listen-address.ts";
import type { Output } from "./output.ts";
import { LATE, within } from "./within.ts";

export interface MetricsServerOptions {
  readonly address: ListenAddress;
  readonly registry: PrometheusRegistry;
  readonly health: Health;
  readonly output: Output;
  /** How long the registry may take. Default 9 s. */
  readonly answerMs?: number;
}

/** Less than the 10 s that Prometheus waits for an answer. */
const ANSWER_MS = 9000;
/** When the address cannot be had, it is tried again after this time. */
const AGAIN_MS = 5000;

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** `/metrics` for Prometheus, `/healthz` and `/readyz` for probes. It never holds up or ends the process it is about. */
export class MetricsServer implements Disposable {
  readonly #options: MetricsServerOptions;
  readonly #server: Server;
  #again: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: MetricsServerOptions) {
    this.#options = options;
    this.#server = createServer((request, response) => void this.#respond(request, response));
    // Each request is answered or cut off: askers that hang must not pile up.
    this.#server.requestTimeout = 10_000;
    this.#server.keepAliveTimeout = 65_000;
  }

  /** Throws when the address cannot be had. */
  async listen(): Promise<void> {
    const { host, port } = this.#options.address;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const failed = (error: Error): void => reject(cannotListen(this.#options.address, error));
    this.#server.once("error", failed);
    this.#server.listen({ host, port }, resolve);
    try {
      await promise;
    } finally {
      this.#server.off("error", failed);
    }
    // What breaks afterwards, breaks a single connection.
    this.#server.on("error", () => undefined);
    this.#options.output.note(`Metrics and health at ${this.#where()}: /metrics, /healthz, /readyz`);
  }

  /** For a process that has more important work: it goes on, and the address is tried until it can be had. */
  async listenSoon(): Promise<void> {
    let told = false;
    const attempt = async (): Promise<void> => {
      try {
        await this.listen();
      } catch (error) {
        if (!told)
          this.#options.output.note(`${(error as Error).message}. The work goes on; this is tried again every 5 s`);
        told = true;
        if (!this.#closed) this.#again = setTimeout(() => void attempt(), AGAIN_MS).unref();
      }
    };
    await attempt();
  }

  [Symbol.dispose](): void {
    this.#closed = true;
    clearTimeout(this.#again);
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #where(): string {
    const { address, port, family } = this.#server.address() as AddressInfo;
    return `${family === "IPv6" ? `[${address}]` : address}:${port}`;
  }

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on("error", () => undefined);
    const { status, type, body } = await this.#answer(request);
    response.writeHead(status, { "content-type": type, "cache-control": "no-store" });
    response.end(request.method === "HEAD" ? undefined : body);
  }

  async #answer({ method, url = "" }: IncomingMessage): Promise<Answer> {
    if (method !== "GET" && method !== "HEAD") return text(405, "Only GET and HEAD");
    const { registry, health, output, answerMs = ANSWER_MS } = this.#options;
    try {
      switch (url.replace(/\?.*$/, "")) {
        case "/metrics": {
          const body = await within(answerMs, registry.metrics());
          if (body === LATE) return text(503, `The metrics were not ready within ${answerMs} ms`);
          return { status: 200, type: registry.contentType, body };
        }
        case "/healthz":
          return report(health.live(), output);
        case "/readyz":
          return report(await health.ready(), output);
        default:
          return text(404, "There are /metrics, /healthz and /readyz");
      }
    } catch (error) {
      return text(500, output.secrets.hide(describeError(error)));
    }
  }
}

function text(status: number, body: string): Answer {
  return { status, type: "text/plain; charset=utf-8", body: `${body}\n` };
}

function report(found: { readonly ok: boolean; readonly reasons: readonly string[] }, { secrets }: Output): Answer {
  const { ok, reasons, ...rest } = found;
  const shown = { status: ok ? "ok" : "not ok", reasons: reasons.map((reason) => secrets.hide(reason)), ...rest };
  return { status: ok ? 200 : 503, type: "application/json", body: `${JSON.stringify(shown)}\n` };
}

function cannotListen({ host, port }: ListenAddress, error: Error): Error {
  const why: Readonly<Record<string, string>> = {
    EADDRINUSE: "the port is taken",
    EACCES: "this user may not use that port",
    EADDRNOTAVAIL: "this machine has no such address",
    ENOTFOUND: "there is no such host",
  };
  const reason = why[errorCode(error) ?? ""] ?? error.message;
  return new Error(`Metrics cannot be served at ${host}:${port}: ${reason}`, { cause: error });
}
