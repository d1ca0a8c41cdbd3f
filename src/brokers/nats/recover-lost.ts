import type { ConsumerInfo, JetStreamApi } from "./jetstream-api.ts";
import type { InFlightMessages } from "./in-flight-messages.ts";
import type { NatsConnection } from "./nats-client.ts";

const FLUSH_EVERY = 10_000;

export interface Recovery {
  readonly connection: NatsConnection;
  readonly api: JetStreamApi;
  readonly inFlight: InFlightMessages;
  readonly stream: string;
  readonly durable: string;
  /** Deliveries got lost with the connection, not with a process: they are no attempts. */
  readonly innocent: boolean;
}

/** Messages that JetStream counts as delivered, and this process does not have. */
export interface Lost {
  readonly count: number;
  /** They are among the first so many of the stream. */
  readonly upTo: number;
}

/**
 * Has messages delivered again whose delivery was lost with a connection or a process. JetStream itself would wait
 * for their time to run out, and deliver later messages of their keys meanwhile.
 */
export async function recoverLost(recovery: Recovery, info: ConsumerInfo): Promise<Lost> {
  const { api, stream, durable } = recovery;
  const before = countLost(recovery.inFlight, info);
  if (before.count === 0) return before;
  await askAgain(recovery, info);
  const after = await api.consumer(stream, durable);
  return after === undefined ? before : { ...countLost(recovery.inFlight, after), upTo: before.upTo };
}

export function countLost(inFlight: InFlightMessages, info: ConsumerInfo): Lost {
  const upTo = info.delivered.stream_seq;
  const here = inFlight.countBetween(info.ack_floor.stream_seq, upTo);
  return { count: Math.max(0, info.num_ack_pending - here), upTo };
}

async function askAgain(recovery: Recovery, { ack_floor, delivered }: ConsumerInfo): Promise<void> {
  const { connection, inFlight, stream, durable, innocent } = recovery;
  const subject = (sequence: number): string =>
    `$JS.ACK.${stream}.${durable}.1.${sequence}.${delivered.consumer_seq}.0.0`;
  let sent = 0;
  for (let sequence = ack_floor.stream_seq + 1; sequence <= delivered.stream_seq; sequence++) {
    if (inFlight.accountsFor(sequence)) continue;
    const settled = inFlight.settledStamp(sequence) !== undefined;
    // The server ignores it for messages that are not awaiting an acknowledgement.
    connection.publish(subject(sequence), settled ? "+ACK" : "-NAK");
    if (!settled && innocent) inFlight.noteLost(sequence);
    if (++sent % FLUSH_EVERY === 0) await connection.flush();
  }
  // The answer comes when all of them have been worked off.
  const barrier = connection.request(subject(delivered.stream_seq), "+WPI", { timeout: 2000 });
  await barrier.catch(() => connection.flush());
}
