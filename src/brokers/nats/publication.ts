import type { PublishResult } from "../../core/contracts.ts";
import { errorCode, type TxboxError, UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { failureOf } from "../../core/publish-each.ts";
import type { AckInbox, Awaiting } from "./ack-inbox.ts";
import { publishAnswer, type PublishAnswer } from "./jetstream-api.ts";
import type { NatsConnection, NatsMessage } from "./nats-client.ts";
import { statusOf } from "./nats-headers.ts";
import { refusedPublish, routeOut, WRONG_LAST_MSG_ID } from "./publish-answer.ts";
import { misfit, parcelHeaders, type Parcel } from "./seal-parcel.ts";
import type { StreamLinks } from "./stream-links.ts";

const PUBLISHED: PublishResult = { status: "published" };
const NOT_TRIED: PublishResult = { status: "unavailable" };
const HELD: PublishResult = { status: "held" };

export interface PublicationTools {
  readonly connection: NatsConnection;
  readonly inbox: AckInbox;
  readonly links: StreamLinks;
  readonly ackTimeoutMs: number;
  seal(message: Message): Parcel;
  /** This client must not be given anything more. */
  unfit(error: Error): void;
  /** Why nobody answered for the subject. */
  nobody(subject: string): Promise<PublishResult>;
}

/** The messages of one key, or one message without a key. */
interface KeyRun {
  readonly indices: number[];
  /** How many of them are through. */
  at: number;
  /** One did not get through: nothing of the key may follow. */
  ended: boolean;
}

/**
 * One batch on its way. A message goes out when every earlier one of its key is confirmed, or else linked: then the
 * server takes it only right behind the one sent before it, so that nothing passes one that was refused.
 */
export class Publication implements Awaiting {
  readonly #messages: readonly Message[];
  readonly #tools: PublicationTools;
  readonly #results: (PublishResult | undefined)[];
  readonly #parcels: (Parcel | undefined)[] = [];
  readonly #replies: (string | undefined)[] = [];
  readonly #runs: KeyRun[] = [];
  readonly #runOf: KeyRun[] = [];
  /** Messages that nobody took. */
  readonly #nowhere: number[] = [];
  readonly #end = Promise.withResolvers<void>();
  /** JetStream streams that have answered. */
  readonly #answered = new Set<string>();
  #notTried = NOT_TRIED;
  #inFlight = 0;
  #answers = 0;
  #linked = false;
  #over = false;

  constructor(messages: readonly Message[], tools: PublicationTools) {
    this.#messages = messages;
    this.#tools = tools;
    this.#results = Array.from({ length: messages.length });
    this.#sortByKey();
  }

  async run(signal: AbortSignal): Promise<PublishResult[]> {
    const abort = (): void => this.giveUp();
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
    return this.#results.map((result, index) => result ?? (this.#runOf[index]!.ended ? HELD : this.#notTried));
  }

  /** Nothing more goes out; of what is under way nothing is known. */
  giveUp(error?: unknown): void {
    if (this.#over) return;
    this.#notTried = error === undefined ? NOT_TRIED : { status: "unavailable", error };
    this.#endReplies(() => this.#notTried);
    this.#finish();
  }

  #endReplies(resultOf: (index: number) => PublishResult): void {
    for (const [index, reply] of this.#replies.entries()) {
      if (reply === undefined) continue;
      this.#tools.inbox.forget(reply);
      this.#results[index] = resultOf(index);
    }
  }

  /** The server does not let this user publish to the subject; others are not concerned. */
  denied(subject: string, error: TxboxError): void {
    for (const [index, reply] of this.#replies.entries()) {
      if (reply === undefined || this.#parcels[index]?.subject !== subject) continue;
      this.#tools.inbox.forget(reply);
      this.#replies[index] = undefined;
      this.#inFlight--;
      this.#results[index] = routeOut(subject, error);
      this.#runOf[index]!.ended = true;
    }
    if (this.#inFlight === 0) this.#next();
  }

  /** No answer for long. Where other streams have answered, only those that are silent are out. */
  #giveUpSilent(): void {
    const { ackTimeoutMs, links } = this.#tools;
    const silence = new UnavailableError(`NATS confirmed nothing for ${ackTimeoutMs} ms`);
    const routeOf = (index: number): string => {
      const { subject } = this.#parcels[index]!;
      return links.streamOf(subject) ?? subject;
    };
    const silent = new Set([...this.#replies.keys()].filter((i) => this.#replies[i] !== undefined).map(routeOf));
    if ([...this.#answered].every((stream) => silent.has(stream))) return this.giveUp(silence);
    this.#endReplies((index) => {
      this.#runOf[index]!.ended = true;
      return routeOut(routeOf(index), `"${routeOf(index)}" confirmed nothing for ${ackTimeoutMs} ms`);
    });
    this.#finish();
  }

  answered(index: number, message: NatsMessage): boolean {
    const nobody = statusOf(message)?.code === 503;
    const answer = nobody ? undefined : publishAnswer(message);
    if (!nobody && answer === undefined) return false;
    this.#answers++;
    this.#inFlight--;
    this.#replies[index] = undefined;
    const run = this.#runOf[index]!;
    const result = this.#read(index, answer);
    if (result === PUBLISHED) {
      this.#results[index] = result;
      if (!this.#linked) this.#advance(run);
    } else if (result !== undefined) {
      this.#results[index] = result;
      run.ended = true;
    }
    if (this.#inFlight === 0) this.#next();
    return true;
  }

  /** Undefined: the message has to be sent again, or nobody took it. */
  #read(index: number, answer: PublishAnswer | undefined): PublishResult | undefined {
    const { subject } = this.#parcels[index]!;
    if (answer === undefined) {
      this.#nowhere.push(index);
      this.#runOf[index]!.ended = true;
      return undefined;
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

  #sortByKey(): void {
    const byKey = new Map<string, KeyRun>();
    for (const [index, { stream, key }] of this.#messages.entries()) {
      const name = key === null ? undefined : `${stream}\0${key}`;
      let run = name === undefined ? undefined : byKey.get(name);
      if (run === undefined) {
        run = { indices: [], at: 0, ended: false };
        this.#runs.push(run);
        if (name !== undefined) byKey.set(name, run);
      }
      run.indices.push(index);
      this.#runOf.push(run);
    }
  }

  #begin(): void {
    const repeated = this.#runs.length < this.#messages.length;
    if (repeated && this.#mayLink()) {
      this.#linked = true;
      const last = new Map<string, string>();
      for (const [index, { subject, id }] of this.#parcels.entries() as IterableIterator<[number, Parcel]>) {
        if (this.#runOf[index]!.ended || this.#over) continue;
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
    for (let index = 0; index < this.#messages.length; index++) {
      const parcel = this.#parcel(index);
      const stream = parcel === undefined ? undefined : links.streamOf(parcel.subject);
      if (stream === undefined) return false;
      const run = this.#runOf[index]!;
      if ((streams.get(run) ?? stream) !== stream) return false;
      streams.set(run, stream);
    }
    return links.allow(new Set(streams.values()));
  }

  /** Sends the next message of a key. */
  #advance(run: KeyRun): void {
    while (!run.ended && !this.#over) {
      const index = run.indices[run.at];
      if (index === undefined) return;
      if (this.#results[index] === PUBLISHED) run.at++;
      else if (this.#send(index, undefined)) return;
    }
  }

  /** False when it cannot be sent; its key has ended then. */
  #send(index: number, after: string | undefined): boolean {
    const { connection, inbox } = this.#tools;
    const parcel = this.#parcel(index);
    if (parcel === undefined) return false;
    const headers = parcelHeaders(parcel, after);
    const tooLarge = misfit(headers.size + parcel.body.length, connection);
    if (tooLarge !== undefined) {
      this.#fail(index, tooLarge);
      return false;
    }
    const reply = inbox.expect(this, index);
    this.#replies[index] = reply;
    this.#inFlight++;
    try {
      connection.publish(parcel.subject, parcel.body, { reply, headers });
      headers.requireSent();
      return true;
    } catch (error) {
      // The subject and the size are right: it is the connection.
      if (error instanceof Error && errorCode(error) === "invalid_option") this.#tools.unfit(error);
      this.giveUp(error);
      return false;
    }
  }

  #parcel(index: number): Parcel | undefined {
    if (this.#parcels[index] !== undefined || this.#results[index] !== undefined) return this.#parcels[index];
    try {
      return (this.#parcels[index] = this.#tools.seal(this.#messages[index]!));
    } catch (error) {
      this.#fail(index, error);
      return undefined;
    }
  }

  #fail(index: number, error: unknown): void {
    this.#results[index] = failureOf(error);
    this.#runOf[index]!.ended = true;
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
    }, this.#tools.ackTimeoutMs);
  }

  async #explainNowhere(): Promise<void> {
    const reasons = new Map<string, Promise<PublishResult>>();
    for (const index of this.#nowhere) {
      const { subject } = this.#parcels[index]!;
      const reason = reasons.get(subject) ?? this.#tools.nobody(subject);
      reasons.set(subject, reason);
      this.#results[index] = await reason;
    }
  }
}
