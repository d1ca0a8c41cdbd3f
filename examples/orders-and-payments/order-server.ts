import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { json } from "node:stream/consumers";
import type { NewOrder, Order, Orders } from "./orders.ts";

interface Answer {
  status: number;
  body: Order | { error: string };
}

/** `POST /orders` and `GET /orders/:id`. */
export function createOrderServer(orders: Orders): Server {
  return createServer((request, response) => {
    answer(orders, request).then(
      (result) => send(response, result),
      (error: unknown) => send(response, { status: 503, body: { error: String(error) } }),
    );
  });
}

async function answer(orders: Orders, request: IncomingMessage): Promise<Answer> {
  const { method, url = "" } = request;
  if (method === "POST" && url === "/orders") return place(orders, request);
  const id = /^\/orders\/([^/]+)$/.exec(url)?.[1];
  const order = method === "GET" && id !== undefined ? await orders.find(decodeURIComponent(id)) : undefined;
  return order === undefined
    ? { status: 404, body: { error: `no ${method ?? ""} ${url}` } }
    : { status: 200, body: order };
}

async function place(orders: Orders, request: IncomingMessage): Promise<Answer> {
  // A client that does not know whether its order arrived sends it again with the same key.
  const key = request.headers["idempotency-key"];
  const id = typeof key === "string" && key !== "" ? key : randomUUID();
  const wanted = asOrder(await json(request).catch(() => undefined), id);
  if (wanted === undefined)
    return { status: 400, body: { error: "send { customer_id, items: [{ price, quantity }] }" } };
  const { order, created } = await orders.place(wanted);
  if (order.customer_id !== wanted.customer_id) return { status: 409, body: { error: `${id} is another order` } };
  return { status: created ? 201 : 200, body: order };
}

function asOrder(body: unknown, id: string): NewOrder | undefined {
  const { customer_id, items } = (body ?? {}) as Partial<NewOrder>;
  if (typeof customer_id !== "string" || customer_id === "" || !Array.isArray(items)) return undefined;
  const whole = (n: unknown): boolean => Number.isInteger(n) && Number(n) > 0 && Number(n) < 1_000_000;
  if (!items.every((item) => whole(item?.price) && whole(item?.quantity) && item.price * item.quantity < 1_000_000))
    return undefined;
  return items.length > 0 && items.length <= 1000 ? { id, customer_id, items } : undefined;
}

function send(response: ServerResponse, { status, body }: Answer): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}
