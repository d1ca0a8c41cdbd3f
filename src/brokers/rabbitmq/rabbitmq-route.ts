import { PermanentError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { valueKind } from "../../core/value-kind.ts";

/** Where a message goes. */
export interface RabbitmqRoute {
  /** "": the default exchange, whose routing key is the name of a queue. */
  exchange: string;
  routingKey: string;
}

let last: { readonly type: string; readonly route: RabbitmqRoute } | undefined;

/** The exchange is named after the stream, the routing key after the type: `order_created` → `order.created`. */
export function routeByStream({ stream, type }: Message): RabbitmqRoute {
  // Types and streams repeat from message to message.
  if (last?.type !== type || last.route.exchange !== stream) {
    last = { type, route: { exchange: stream, routingKey: type.replaceAll("_", ".") } };
  }
  return last.route;
}

/** The name of a route in events and status. */
export function routeName({ exchange, routingKey }: RabbitmqRoute): string {
  return exchange === "" ? `queue ${routingKey}` : `${exchange}/${routingKey}`;
}

/** The name of all routes of an exchange. */
export function exchangeName(exchange: string): string {
  return `${exchange}/#`;
}

const MAX_NAME_BYTES = 255;

/** An error in place of a route that AMQP cannot carry, or that the function did not give. */
export function routeOf(route: (message: Message) => RabbitmqRoute, message: Message): RabbitmqRoute | Error {
  try {
    const given = route(message);
    for (const name of ["exchange", "routingKey"] as const) {
      const value: unknown = given[name];
      if (typeof value !== "string" || Buffer.byteLength(value) > MAX_NAME_BYTES) return badRoute(name, value);
    }
    return given;
  } catch (error) {
    return error instanceof Error ? error : new Error(`route threw ${String(error)}`);
  }
}

function badRoute(field: string, value: unknown): PermanentError {
  const got = typeof value === "string" ? `${Buffer.byteLength(value)} bytes` : valueKind(value);
  return new PermanentError(`The ${field} must be text of at most ${MAX_NAME_BYTES} bytes, got ${got}`, {
    field,
    fix: "Give the publisher a route that shortens it",
  });
}
