import { describeError, UnavailableError } from "../../core/errors.ts";
import type { NatsConnection, NatsStatus } from "./nats-client.ts";

export interface NatsLinkListener {
  /** The connection is lost; the client tries to get it back, unless `closed`. */
  down(error: UnavailableError): void;
  up?(): void;
  /** The server does not allow something. */
  denied?(error: Error): void;
}

/** Follows a connection that the client mends by itself: whether it is there now. */
export class NatsLink {
  readonly #connection: NatsConnection;
  readonly #listener: NatsLinkListener;
  readonly #statuses: ReturnType<NatsConnection["status"]>;
  #down: UnavailableError | undefined;
  #ended = false;

  constructor(connection: NatsConnection, listener: NatsLinkListener) {
    this.#connection = connection;
    this.#listener = listener;
    this.#statuses = connection.status();
    void this.#follow();
    void connection.closed().then((error) => this.#lost(closedError(error)));
  }

  /** Why nothing can be sent now. What is given to the client meanwhile would be sent late, or never. */
  get down(): UnavailableError | undefined {
    if (this.#connection.isClosed()) this.#down = closedError(undefined);
    return this.#down;
  }

  end(): void {
    this.#ended = true;
    this.#statuses.stop?.();
  }

  async #follow(): Promise<void> {
    try {
      for await (const status of this.#statuses) {
        if (this.#ended) return;
        this.#notice(status);
      }
    } catch (error) {
      this.#lost(new UnavailableError(`The NATS client reports nothing any more: ${describeError(error)}`));
    }
  }

  #notice({ type, error }: NatsStatus): void {
    if (type === "disconnect" || type === "staleConnection" || type === "forceReconnect") {
      this.#lost(new UnavailableError("The connection to NATS is lost; the client is connecting again"));
    } else if (type === "reconnect") {
      this.#down = undefined;
      this.#listener.up?.();
    } else if (type === "error" && error?.name === "PermissionViolationError") {
      this.#listener.denied?.(error);
    }
  }

  #lost(error: UnavailableError): void {
    if (this.#ended) return;
    this.#down = error;
    this.#listener.down(error);
  }
}

function closedError(error: unknown): UnavailableError {
  const why = error instanceof Error ? `: ${error.message}` : "";
  return new UnavailableError(`The connection to NATS is closed${why}`, {
    field: "connection",
    fix: "Connect with maxReconnectAttempts: -1, so that the client never gives up, and close it last",
    cause: error,
  });
}
