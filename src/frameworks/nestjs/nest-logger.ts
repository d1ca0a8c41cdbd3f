import type { EventLogger } from "../../observability/log-events.ts";

/** A logger of Nest: `new Logger("txbox")` of `@nestjs/common`. */
export interface NestLoggerLike {
  error(message: unknown): unknown;
  warn(message: unknown): unknown;
  log(message: unknown): unknown;
  debug?(message: unknown): unknown;
  verbose?(message: unknown): unknown;
}

/** For `logEvents({ logger: nestLogger(new Logger("txbox")) })`: the sentence of each event. */
export function nestLogger(logger: NestLoggerLike): EventLogger {
  return {
    error: (_, message) => logger.error(message),
    warn: (_, message) => logger.warn(message),
    info: (_, message) => logger.log(message),
    debug: (_, message) => logger.debug?.(message),
    trace: (_, message) => logger.verbose?.(message),
  };
}
