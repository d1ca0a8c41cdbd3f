/** The command line or the configuration is wrong: one line for the user, exit code 2. */
export class UsageError extends Error {
  override readonly name: string = "UsageError";
  /** Whose `--help` would help. */
  readonly command: string | undefined;

  constructor(message: string, options: { command?: string | undefined; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.command = options.command;
  }
}
