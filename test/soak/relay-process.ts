import type { Socket } from "node:net";
import { errorCode } from "../../src/core/errors.ts";
import type { Publisher, PublishResult } from "../../src/core/contracts.ts";
import type { Message } from "../../src/core/message.ts";
import { createRelay } from "../../src/relay/relay.ts";
import { connectTo, type FromJournal, onLines, sendLine, type WireMessage, type WireResult } from "./wire.ts";
import { stageNamed } from "./stage.ts";
import { LEASE_MS, RELAY } from "./world.ts";

const [stage = "", url = "", port = "", name = "", keepsKeyOrder = ""] = process.argv.slice(2);
const CHUNK = 20;

/** Publishes to the journal over a socket, some messages at a time, as a broker's client would. */
class JournalPublisher implements Publisher {
  readonly keepsKeyOrder: boolean = keepsKeyOrder === "true";
  #socket: Socket | undefined;
  #batch = 0;
  readonly #waiting = new Map<number, { resolve(results: WireResult[]): void; reject(error: Error): void }>();

  async publish(messages: readonly Message[], signal: AbortSignal): Promise<PublishResult[]> {
    const results: PublishResult[] = [];
    const held = new Set<string | null>();
    for (let from = 0; from < messages.length; from += CHUNK) {
      const chunk = messages.slice(from, from + CHUNK);
      // After the lease is lost nothing more goes out; what went out is told.
      const sent = signal.aborted ? [] : chunk.filter(({ key }) => key === null || !held.has(key));
      const answers = sent.length === 0 ? [] : await this.#send(sent.map(wire));
      for (const message of chunk) {
        const status = answers[sent.indexOf(message)] ?? "unavailable";
        if (status !== "published" && message.key !== null) held.add(message.key);
        results.push(status === "published" ? { status } : { status, error: new Error(`the journal says ${status}`) });
      }
    }
    return results;
  }

  async #send(messages: WireMessage[]): Promise<WireResult[]> {
    const socket = (this.#socket ??= await this.#open());
    const batch = ++this.#batch;
    return new Promise((resolve, reject) => {
      this.#waiting.set(batch, { resolve, reject });
      sendLine(socket, { op: "publish", batch, relay: name, messages });
    });
  }

  async #open(): Promise<Socket> {
    const socket = await connectTo(Number(port));
    onLines(socket, (line) => {
      const { batch, results } = JSON.parse(line) as FromJournal;
      if (batch === undefined || results === undefined) return;
      this.#waiting.get(batch)?.resolve(results);
      this.#waiting.delete(batch);
    });
    socket.on("close", () => {
      this.#socket = undefined;
      for (const waiting of this.#waiting.values()) waiting.reject(new Error("the journal hung up"));
      this.#waiting.clear();
    });
    return socket;
  }
}

function wire(message: Message): WireMessage {
  const { id, key, position, body } = message;
  if (typeof body !== "string") throw new Error("the soak sends text");
  return { id, key, position: String(position), body };
}

const counts: Record<string, number> = {};
const { store } = (await stageNamed(stage)).openStore(url, 6);
const relay = createRelay({
  store,
  name: RELAY,
  publisher: new JournalPublisher(),
  batchSize: 60,
  leaseMs: LEASE_MS,
  backoff: { baseMs: 50, maxMs: 500 },
  maxAttempts: 5,
  onDead: "block",
  maxParked: 2000,
  // The maintainer does it, far more often than a relay would.
  maintenance: false,
  onEvent(event) {
    counts[event.type] = (counts[event.type] ?? 0) + 1;
    if (event.type === "store_error") process.stdout.write(`store_error ${event.code ?? "-"} ${event.error}\n`);
    if (event.type === "dead") process.stdout.write(`dead ${event.position} ${event.error}\n`);
  },
});
process.once("SIGTERM", () => {
  void relay.stop({ deadlineMs: 3000 }).then(() => process.exit(0));
});
try {
  await relay.start();
} catch (error) {
  process.stderr.write(`start failed: ${errorCode(error) ?? ""} ${String(error)}\n`);
  process.exit(1);
}
process.stdout.write("started\n");
setInterval(
  () => process.stdout.write(`events ${JSON.stringify({ ...counts, lanes: relay.state().session?.lanes ?? 0 })}\n`),
  1000,
);
