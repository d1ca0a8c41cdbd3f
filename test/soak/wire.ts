import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";

/** What travels of a message between relays, the journal and consumers. */
export interface WireMessage {
  id: string;
  key: string | null;
  position: string;
  body: string;
}

/** What every message of the soak says of itself. */
export interface SoakPayload {
  /** The aggregate, also of messages that have no ordering key. */
  key: string;
  n: number;
  /** Unique per attempt: one that was rolled back never has the nonce of one that committed. */
  nonce: string;
  /** Refused for good until it is requeued. */
  poison?: boolean;
}

export type WireResult = "published" | "failed" | "rejected" | "unavailable";

export type ToJournal =
  | { op: "publish"; batch: number; relay: string; messages: WireMessage[] }
  | { op: "subscribe"; concurrency: number }
  | { op: "ack" | "nack"; delivery: number };

export interface FromJournal {
  batch?: number;
  results?: WireResult[];
  delivery?: number;
  message?: WireMessage;
}

export function sendLine(socket: Socket, value: ToJournal | FromJournal): void {
  if (!socket.destroyed) socket.write(`${JSON.stringify(value)}\n`);
}

export function onLines(socket: Socket, listener: (line: string) => void): void {
  const lines = createInterface({ input: socket });
  lines.on("line", listener);
  // The socket reports its errors itself.
  lines.on("error", () => undefined);
}

export function connectTo(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port, noDelay: true });
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.on("error", () => undefined);
      resolve(socket);
    });
  });
}
