import { BatchResults, failureOf, givenUp, groupByKey, type Batch } from "../../adapter/index.ts";
import { NOT_TRIED, PUBLISHED } from "../../core/batch-results.ts";
import type { PublishResult } from "../../core/contracts.ts";
import { errorCode, type TxboxError, UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import type { AckInbox, Awaiting } from "./ack-inbox.ts";
import { publishAnswer, type PublishAnswer } from "./jetstream-api.ts";
import type { NatsConnection, NatsMessage } from "./nats-client.ts";
import { encodedHeaders, misfit, type EncodedMessage } from "./nats-envelope.ts";
import { statusOf } from "./nats-headers.ts";
import { refusedPublish, routeOut, WRONG_LAST_MSG_ID } from "./publish-answer.ts";
import type { StreamLinks } from "./stream-links.ts";

export interface NatsBatchTools {
  readonly connection: NatsConnection;
  readonly inbox: AckInbox;
  readonly links: StreamLinks;
  readonly timeoutMs: number;
  /** The messages of a batch by their places; encoding one may throw. */
  encoded(messages: readonly Message[]): (index: number) => EncodedMessage;
  /** This client must not be given anything more. */
  unfit(error: Error): void;
  /** Why no stream answered for the subject. */
  nobody(subject: string): Promise<PublishResult>;
}

/** The messages of one key, or one message without a key. */
interface KeyRun {
  readonly indices: readonly number[];
  /** How many of them are through. */
  at: number;
}

/**
 * One batch on its way. A message goes out when every earlier one of its key is confirmed, or else linked: then the
 * server takes it only right behind the one sent before it, so that nothing passes one that was refused.
 */
export class NatsBatch implements Awaiting {
  readonly #batch: Batch;
  readonly #tools: NatsBatchTools;
  readonly #results: BatchResults;
  readonly #encode: (index: number) => EncodedMessage;
  readonly #encoded: (EncodedMessage | undefined)[] = [];
  readonly #replies: (string | undefined)[] = [];
  readonly #runs: readonly KeyRun[];
  /** By message. */
  readonly #runOf: KeyRun[] = [];
  /** Messages that no stream took. */
  readonly #nowhere: number[] = [];
  readonly #end = Promise.withResolvers<void>();
  /** JetStream streams that have answered. */
  readonly #answered = new Set<string>();
  #notTried = NOT_TRIED;
  #inFlight = 0;
  #answers = 0;
  #linked = false;
  #over = false;

  constructor(batch: Batch, tools: NatsBatchTools) {
    this.#batch = batch;
    this.#tools = tools;
    this.#results = new BatchResults(batch.messages);
    this.#encode = tools.encoded(batch.messages);
    this.#runs = groupByKey(batch.messages).map((indices) => ({ indices, at: 0 }));
    for (const run of this.#runs) for (const index of run.indices) this.#runOf[index] = run;
  }

  async run(): Promise<PublishResult[]> {
    const { signal } = this.#batch;
    const abort = (): void => this.giveUp(givenUp(signal));
    const timer = this.#watch();
    signal.addEventListener("abort", abort, { once: true });
    try {
      this.#begin();
      await this.#end.promise;
    } finally {
      clearInterval(timer);
      signal.removeEventListener("abort", abort);
    }
    await this.#explainNowhere();
    return this.#results.all(this.#notTried);
  }

  /** Nothing more goes out; of what is under way nothing is known. */
  giveUp(error: unknown): void {
    if (this.#over) return;
    this.#notTried = { status: "unavailable", error };
    for (const reply of this.#replies) if (reply !== undefined) this.#tools.inbox.forget(reply);
    this.#finish();
  }

  /** The server does not let this user publish to the subject; others are not concerned. */
  denied(subject: string, error: TxboxError): void {
    for (const [index, reply] of this.#replies.entries()) {
      if (reply === undefined || this.#encoded[index]?.subject !== subject) continue;
      this.#tools.inbox.forget(reply);
      this.#replies[index] = undefined;
      this.#inFlight--;
      this.#results.set(index, routeOut(subject, error));
    }
    if (this.#inFlight === 0) this.#next();
  }

  /** No answer for long. Where other streams have answered, only those that are silent are out. */
  #giveUpSilent(): void {
    const { timeoutMs, links, inbox } = this.#tools;
    const silence = new UnavailableError(`NATS confirmed nothing for ${timeoutMs} ms`);
    const routeOf = (index: number): string => {
      const { subject } = this.#encoded[index]!;
      return links.streamOf(subject) ?? subject;
    };
    const silent = new Set([...this.#replies.keys()].filter((i) => this.#replies[i] !== undefined).map(routeOf));
    if ([...this.#answered].every((stream) => silent.has(stream))) return this.giveUp(silence);
    for (const [index, reply] of this.#replies.entries()) {
      if (reply === undefined) continue;
      inbox.forget(reply);
      const route = routeOf(index);
      this.#results.set(index, routeOut(route, `"${route}" confirmed nothing for ${timeoutMs} ms`));
    }
    this.#finish();
  }

  answered(index: number, message: NatsMessage): boolean {
    const nobody = statusOf(message)?.code === 503;
    const answer = nobody ? undefined : publishAnswer(message);
    if (!nobody && answer === undefined) return false;
    this.#answers++;
    this.#inFlight--;
    this.#replies[index] = undefined;
    const result = this.#read(index, answer);
    if (result !== undefined) this.#results.set(index, result);
    if (result === PUBLISHED && !this.#linked) this.#advance(this.#runOf[index]!);
    if (this.#inFlight === 0) this.#next();
    return true;
  }

  /** Undefined: the message has to be sent again. */
  #read(index: number, answer: PublishAnswer | undefined): PublishResult | undefined {
    const { subject } = this.#encoded[index]!;
    if (answer === undefined) {
      // The reason is asked for when all is through.
      this.#nowhere.push(index);
      return NOT_TRIED;
    }
    if (answer.stream !== "") this.#answered.add(answer.stream);
    if (!("error" in answer)) {
      this.#tools.links.learn(subject, answer.stream);
      return PUBLISHED;
    }
    if (this.#linked && answer.error.err_code === WRONG_LAST_MSG_ID) {
      this.#tools.links.broke(subject);
      return undefined;
    }
    return refusedPublish(subject, answer.stream, answer.error);
  }

  #begin(): void {
    const repeated = this.#runs.length < this.#batch.messages.length;
    if (repeated && this.#mayLink()) {
      this.#linked = true;
      const last = new Map<string, string>();
      for (let index = 0; index < this.#encoded.length && this.#mayBegin(); index++) {
        if (!this.#results.isOpen(index)) continue;
        const { subject, id } = this.#encoded[index]!;
        const stream = this.#tools.links.streamOf(subject)!;
        if (this.#send(index, last.get(stream))) last.set(stream, id);
      }
    } else {
      for (const run of this.#runs) this.#advance(run);
    }
    if (this.#inFlight === 0) this.#next();
  }

  /** Every message goes to a stream that is known to be ours alone, and no key goes to two of them. */
  #mayLink(): boolean {
    const { links } = this.#tools;
    const streams = new Map<KeyRun, string>();
    for (let index = 0; index < this.#batch.messages.length; index++) {
      const encoded = this.#encodedAt(index);
      const stream = encoded === undefined ? undefined : links.streamOf(encoded.subject);
      if (stream === undefined) return false;
      const run = this.#runOf[index]!;
      if ((streams.get(run) ?? stream) !== stream) return false;
      streams.set(run, stream);
    }
    return links.allow(new Set(streams.values()));
  }

  /** Asked before each message: it may be long since the last one. */
  #mayBegin(): boolean {
    return !this.#over && this.#batch.mayBegin();
  }

  /** Sends the next message of a key. */
  #advance(run: KeyRun): void {
    for (let index = run.indices[run.at]; index !== undefined; index = run.indices[run.at]) {
      if (this.#results.get(index) === PUBLISHED) run.at++;
      else if (!this.#results.isOpen(index) || !this.#mayBegin() || this.#send(index, undefined)) return;
    }
  }

  /** False when it cannot be sent; its key has ended then. */
  #send(index: number, after: string | undefined): boolean {
    const { connection, inbox } = this.#tools;
    const encoded = this.#encodedAt(index);
    if (encoded === undefined) return false;
    const headers = encodedHeaders(encoded, after);
    const tooLarge = misfit(headers.size + encoded.body.length, connection);
    if (tooLarge !== undefined) {
      this.#results.set(index, failureOf(tooLarge));
      return false;
    }
    const reply = inbox.expect(this, index);
    this.#replies[index] = reply;
    this.#inFlight++;
    try {
      connection.publish(encoded.subject, encoded.body, { reply, headers });
      headers.requireSent();
      return true;
    } catch (error) {
      // The subject and the size are right: it is the connection.
      if (error instanceof Error && errorCode(error) === "invalid_option") this.#tools.unfit(error);
      this.giveUp(error);
      return false;
    }
  }

  #encodedAt(index: number): EncodedMessage | undefined {
    if (this.#encoded[index] !== undefined || this.#results.get(index) !== undefined) return this.#encoded[index];
    try {
      return (this.#encoded[index] = this.#encode(index));
    } catch (error) {
      this.#results.set(index, failureOf(error));
      return undefined;
    }
  }

  /** All answers are here. */
  #next(): void {
    if (this.#over) return;
    if (this.#linked) {
      this.#linked = false;
      for (const run of this.#runs) this.#advance(run);
    }
    if (this.#inFlight === 0) this.#finish();
  }

  #finish(): void {
    this.#over = true;
    this.#end.resolve();
  }

  #watch(): NodeJS.Timeout {
    let seen = -1;
    return setInterval(() => {
      if (seen === this.#answers) this.#giveUpSilent();
      seen = this.#answers;
    }, this.#tools.timeoutMs);
  }

  async #explainNowhere(): Promise<void> {
    const reasons = new Map<string, Promise<PublishResult>>();
    for (const index of this.#nowhere) {
      const { subject } = this.#encoded[index]!;
      const reason = reasons.get(subject) ?? this.#tools.nobody(subject);
      reasons.set(subject, reason);
      this.#results.set(index, await reason);
    }
  }
}
