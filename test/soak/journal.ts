import { createServer, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "./random.ts";
import {
  type FromJournal,
  onLines,
  sendLine,
  type SoakPayload,
  type ToJournal,
  type WireMessage,
  type WireResult,
} from "./wire.ts";

/** An accepted publish; the place in the journal is the order of arrival. */
export interface JournalEntry {
  key: string;
  n: number;
  nonce: string;
  relay: string;
  position: string;
  at: number;
}

interface Lane {
  waiting: WireMessage[];
  inFlight: boolean;
}

interface Consumer {
  socket: Socket;
  free: number;
  deliveries: Map<number, string>;
}

/**
 * The broker of the soak, and its memory: never killed. It stamps every publish with the order of arrival, refuses some
 * at random, and brings each to a consumer at least once, one of a key at a time.
 */
export class Journal {
  readonly entries: JournalEntry[] = [];
  readonly refused = { failed: 0, rejected: 0, outages: 0 };
  redeliveries = 0;
  #server: Server | undefined;
  readonly #random: Random;
  readonly #lanes = new Map<string, Lane>();
  readonly #ready: string[] = [];
  readonly #consumers = new Set<Consumer>();
  readonly #publishers = new Set<Socket>();
  readonly #healed = new Set<string>();
  #delivery = 0;
  #out = false;
  #calm = false;

  constructor(random: Random) {
    this.#random = random;
  }

  async listen(): Promise<number> {
    const server = createServer({ noDelay: true }, (socket) => this.#connected(socket));
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("no port");
    return address.port;
  }

  close(): void {
    this.#server?.close();
    for (const socket of this.#publishers) socket.destroy();
    for (const { socket } of this.#consumers) socket.destroy();
  }

  /** Cuts off every relay for a while. */
  async outage(ms: number): Promise<void> {
    this.refused.outages++;
    this.#out = true;
    for (const socket of this.#publishers) socket.destroy();
    await sleep(ms);
    this.#out = false;
  }

  /** No more refusals. */
  calm(): void {
    this.#calm = true;
  }

  /** From now on the message is accepted, so that it can be requeued. */
  heal(nonce: string): void {
    this.#healed.add(nonce);
  }

  get undelivered(): number {
    let sum = 0;
    for (const lane of this.#lanes.values()) sum += lane.waiting.length;
    return sum;
  }

  #connected(socket: Socket): void {
    socket.on("error", () => undefined);
    let consumer: Consumer | undefined;
    socket.on("close", () => {
      this.#publishers.delete(socket);
      if (consumer !== undefined) this.#gone(consumer);
    });
    onLines(socket, (line) => {
      const message = JSON.parse(line) as ToJournal;
      switch (message.op) {
        case "publish":
          this.#publishers.add(socket);
          void this.#publish(socket, message.batch, message.relay, message.messages);
          break;
        case "subscribe":
          consumer = { socket, free: message.concurrency, deliveries: new Map() };
          this.#consumers.add(consumer);
          this.#deliver();
          break;
        case "ack":
        case "nack":
          if (consumer !== undefined) this.#answered(consumer, message.delivery, message.op === "ack");
          break;
      }
    });
  }

  async #publish(socket: Socket, batch: number, relay: string, messages: readonly WireMessage[]): Promise<void> {
    if (this.#out) {
      socket.destroy();
      return;
    }
    const held = new Set<string>();
    const results = messages.map((message) => {
      if (message.key !== null && held.has(message.key)) return "unavailable";
      const result = this.#accept(relay, message);
      if (result !== "published" && message.key !== null) held.add(message.key);
      return result;
    });
    this.#deliver();
    // Accepted but not yet confirmed: who dies now has published without knowing it.
    await sleep(this.#random.int(0, 20));
    sendLine(socket, { batch, results } satisfies FromJournal);
  }

  #accept(relay: string, message: WireMessage): WireResult {
    const { key, n, nonce, poison = false } = JSON.parse(message.body) as SoakPayload;
    if (poison && !this.#calm && !this.#healed.has(nonce)) {
      this.refused.rejected++;
      return "rejected";
    }
    const failing = !this.#calm && this.#random.chance(0.01);
    // Half of the failures are lies: the message is in, and the relay will send it again.
    if (!failing || this.#random.chance(0.5)) {
      this.entries.push({ key, n, nonce, relay, position: message.position, at: Date.now() });
      this.#enqueue(message.key ?? nonce, message);
    }
    if (failing) this.refused.failed++;
    return failing ? "failed" : "published";
  }

  #enqueue(key: string, message: WireMessage): void {
    let lane = this.#lanes.get(key);
    if (lane === undefined) this.#lanes.set(key, (lane = { waiting: [], inFlight: false }));
    lane.waiting.push(message);
    if (!lane.inFlight && lane.waiting.length === 1) this.#ready.push(key);
  }

  #deliver(): void {
    for (const consumer of this.#consumers) {
      while (consumer.free > 0) {
        const key = this.#ready.shift();
        if (key === undefined) return;
        const lane = this.#lanes.get(key);
        const message = lane?.waiting[0];
        if (lane === undefined || message === undefined) continue;
        lane.inFlight = true;
        consumer.free--;
        const delivery = ++this.#delivery;
        consumer.deliveries.set(delivery, key);
        sendLine(consumer.socket, { delivery, message });
      }
    }
  }

  #answered(consumer: Consumer, delivery: number, done: boolean): void {
    const key = consumer.deliveries.get(delivery);
    if (key === undefined) return;
    consumer.deliveries.delete(delivery);
    consumer.free++;
    if (done) {
      this.#release(key, true);
    } else {
      this.redeliveries++;
      setTimeout(() => this.#release(key, false), 30);
    }
    this.#deliver();
  }

  #gone(consumer: Consumer): void {
    this.#consumers.delete(consumer);
    for (const key of consumer.deliveries.values()) {
      this.redeliveries++;
      this.#release(key, false);
    }
    consumer.deliveries.clear();
    this.#deliver();
  }

  #release(key: string, done: boolean): void {
    const lane = this.#lanes.get(key);
    if (lane === undefined) return;
    if (done) lane.waiting.shift();
    lane.inFlight = false;
    if (lane.waiting.length > 0) this.#ready.push(key);
    else this.#lanes.delete(key);
    this.#deliver();
  }
}
