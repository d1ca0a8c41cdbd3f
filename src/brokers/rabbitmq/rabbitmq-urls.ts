import { TxboxError } from "../../core/errors.ts";

/** What `connect` of amqplib takes in place of a URL. */
export interface RabbitmqAddress {
  protocol: string;
  hostname: string;
  port?: number;
  username?: string;
  password?: string;
  vhost?: string;
  locale?: string;
  frameMax?: number;
  maxFrameSize?: number;
  channelMax?: number;
  heartbeat?: number;
}

/**
 * The nodes of a cluster as one address for `connect(rabbitmqUrls([…]), { recovery })` of amqplib: each attempt to connect
 * goes to the next of them.
 */
export function rabbitmqUrls(urls: readonly string[]): RabbitmqAddress {
  const addresses = Array.isArray(urls) ? urls.map(addressOf) : [];
  const [first] = addresses;
  if (first === undefined) throw badUrl("rabbitmqUrls needs at least one URL");
  let next = 0;
  let current: RabbitmqAddress | undefined;
  const take = (): RabbitmqAddress => {
    current = addresses[next++ % addresses.length] ?? first;
    queueMicrotask(() => (current = undefined));
    return current;
  };
  // An attempt to connect reads all it needs in one go.
  return new Proxy(first, { get: (_, name): unknown => Reflect.get(current ?? take(), name) });
}

function addressOf(url: string): RabbitmqAddress {
  if (!URL.canParse(url)) throw badUrl(`"${withoutPassword(url)}" is no URL`);
  const { protocol, hostname, port, username, password, pathname, searchParams } = new URL(url);
  if (protocol !== "amqp:" && protocol !== "amqps:") throw badUrl(`"${protocol}//${hostname}" is no URL of RabbitMQ`);
  const address: RabbitmqAddress = {
    protocol: protocol.slice(0, -1),
    hostname: hostname.replaceAll(/^\[|\]$/g, ""),
  };
  if (port !== "") address.port = Number(port);
  if (username !== "" || password !== "") {
    address.username = decodeURIComponent(username);
    address.password = decodeURIComponent(password);
  }
  // amqplib decodes it.
  if (pathname.length > 1) address.vhost = pathname.slice(1);
  for (const name of ["frameMax", "maxFrameSize", "channelMax", "heartbeat"] as const) {
    const value = searchParams.get(name);
    if (value !== null) address[name] = Number(value);
  }
  const locale = searchParams.get("locale");
  if (locale !== null) address.locale = locale;
  return address;
}

function withoutPassword(url: unknown): string {
  return String(url).replace(/\/\/.*@/, "//…@");
}

function badUrl(message: string): TxboxError {
  return new TxboxError("invalid_option", message, {
    field: "urls",
    fix: 'Pass ["amqp://user:password@host-1", "amqp://user:password@host-2"]',
  });
}
