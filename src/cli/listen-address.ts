import { UsageError } from "./usage-error.ts";

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** `127.0.0.1:9464`, `[::1]:9464`, `metrics.local:9464`, or a port of this machine alone. */
export function listenAddress(flag: string, text: string, command: string): ListenAddress {
  const fail = (why: string): never => {
    throw new UsageError(`${flag} ${why}, got "${text}". Write 127.0.0.1:9464, or 0.0.0.0:9464 for every interface`, {
      command,
    });
  };
  const colon = text.lastIndexOf(":");
  const host = colon === -1 ? "127.0.0.1" : text.slice(0, colon).replace(/^\[(.*)\]$/, "$1");
  const digits = text.slice(colon + 1);
  const port = /^\d{1,5}$/.test(digits) ? Number(digits) : Number.NaN;
  if (!(port >= 0 && port <= 65_535)) fail("needs a port from 0 to 65535");
  if (!/^[\w.:%-]+$/.test(host)) fail("needs a host");
  return { host, port };
}
