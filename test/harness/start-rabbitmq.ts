import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./free-port.ts";
import { LocalRabbitmq } from "./local-rabbitmq.ts";

export { RABBITMQ_MAX_MESSAGE_BYTES } from "./local-rabbitmq.ts";

export interface RabbitmqOptions {
  /** Lines of rabbitmq.conf; they win over the defaults. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Start a private server though TXBOX_TEST_RABBITMQ_URL is set: for suites that kill or pause it. */
  readonly owned?: boolean;
  readonly startTimeoutMs?: number;
}

export interface RabbitmqServer {
  readonly url: string;
  readonly port: number;
  readonly pid: number | undefined;
  /** True when the URL came from the environment: such a server can be neither killed nor paused. */
  readonly external: boolean;
  log(): string;
  /**
   * RabbitMQ 3.10 writes its tables every three minutes. When the only node is killed, a younger quorum queue never gets
   * a leader again, and a younger binding was now and then gone. This does now what it would have done by then; call it
   * before `kill`.
   */
  saveTopology(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** Starts it again on the same port and data, after SIGKILL if it still runs. */
  restart(): Promise<void>;
  /** SIGSTOP: connections stay, nothing is answered. */
  pause(): void;
  resume(): void;
  /** Runs rabbitmqctl against it, and gives what it printed. */
  ctl(...args: string[]): Promise<string>;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Starts a private RabbitMQ, or wraps the one of TXBOX_TEST_RABBITMQ_URL. It ends when this process ends. */
export async function startRabbitmq(options: RabbitmqOptions = {}): Promise<RabbitmqServer> {
  const url = process.env["TXBOX_TEST_RABBITMQ_URL"];
  if (url !== undefined && url !== "" && options.owned !== true) return externalServer(url);
  const folder = mkdtempSync(join(tmpdir(), "txbox-rabbitmq-"));
  try {
    const [port, distribution, epmd] = [await freePort(), await freePort(), await freePort()];
    const server = new LocalRabbitmq(folder, { port, distribution, epmd }, options);
    await server.start();
    return server;
  } catch (error) {
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    throw error;
  }
}

function externalServer(url: string): RabbitmqServer {
  const refuse = (what: string): Error =>
    new Error(`cannot ${what} the server of TXBOX_TEST_RABBITMQ_URL; use startRabbitmq({ owned: true })`);
  const no = (what: string) => (): never => {
    throw refuse(what);
  };
  return {
    url,
    port: Number(new URL(url).port || 5672),
    pid: undefined,
    external: true,
    log: () => "",
    saveTopology: () => Promise.reject(refuse("save the topology of")),
    kill: () => Promise.reject(refuse("kill")),
    restart: () => Promise.reject(refuse("restart")),
    pause: no("pause"),
    resume: no("resume"),
    ctl: () => Promise.reject(refuse("run rabbitmqctl against")),
    stop: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}
