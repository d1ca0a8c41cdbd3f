/** This machine cannot run a server. `reason` says what is missing and the one command that would help. */
export class ServerUnavailableError extends Error {
  override readonly name = "ServerUnavailableError";
  readonly code = "SERVER_UNAVAILABLE";
  readonly reason: string;

  constructor(reason: string, options?: ErrorOptions) {
    super(reason, options);
    this.reason = reason;
  }
}
