import type { Admin, DeadLetter, MessageInfo, ReceiptInfo, SentMessage } from "../core/contracts.ts";
import { safeListener } from "../core/channels.ts";
import { TxboxError } from "../core/errors.ts";
import type { Message } from "../core/message.ts";
import { uuidv7Time } from "../core/uuid.ts";
import { type AuditOptions, checkAuditOptions, DEFAULT_GRACE_MS, DEFAULT_RATE } from "./audit-options.ts";
import { type AuditFinding, type AuditOutcome, type AuditReport, isClean } from "./audit-report.ts";
import { RequeueMissing } from "./requeue-missing.ts";

const PAGE = 1000;
/** Messages are read with their bodies, which may be large. */
const LOOK_UP = 100;

/**
 * Compares what a relay published with the receipts of a consumer, page by page: memory does not grow with the number of
 * messages. It reads only, unless it is given a publisher to send what is missing again.
 */
export async function audit(options: AuditOptions): Promise<AuditReport> {
  checkAuditOptions(options);
  const relay = await relayOf(options);
  const run = new AuditRun(options, relay);
  await run.judgeSent();
  await run.listDead();
  return run.end();
}

class AuditRun {
  readonly report: AuditReport;
  readonly #options: AuditOptions;
  readonly #from: Admin;
  readonly #to: Admin;
  readonly #graceMs: number;
  /** What was published after this may be on its way. The end of the audit would be too late: receipts are read before. */
  readonly #young: number;
  readonly #requeue: RequeueMissing | undefined;
  readonly #tell: (finding: AuditFinding) => void;
  readonly #progress: (at: Date | null) => void;

  constructor(options: AuditOptions, relay: string) {
    const { from, to, consumer, since, until = new Date(), graceMs = DEFAULT_GRACE_MS, requeue, signal } = options;
    this.#options = options;
    this.#from = from.admin;
    this.#to = to.admin;
    this.#graceMs = graceMs;
    this.#young = Date.now() - graceMs;
    this.#requeue =
      requeue === undefined ? undefined : new RequeueMissing(requeue, options.rate ?? DEFAULT_RATE, signal);
    const { onFinding = () => undefined, onProgress = () => undefined } = options;
    const told = safeListener("onFinding", onFinding);
    this.#tell = (finding) => told(finding, finding.outcome);
    const heard = safeListener("onProgress", onProgress);
    const counts = { checked: 0, arrived: 0, underway: 0, unsent: 0, skipped: 0, unjudged: 0 };
    const outcomes = { missing: 0, failed: 0, unhandled: 0, late: 0, dead: 0 };
    this.report = {
      clean: false,
      relay,
      consumer,
      since,
      until,
      ...counts,
      ...outcomes,
      keptSince: null,
      backlog: { pending: 0, oldestAgeMs: null },
      findings: [],
      requeued: this.#requeue?.report ?? null,
    };
    this.#progress = (at) => {
      const { checked, missing, failed, unhandled, late, dead } = this.report;
      heard({ checked, missing, failed, unhandled, late, dead, at }, "progress");
    };
  }

  async judgeSent(): Promise<void> {
    const { relay, since, until } = this.report;
    const { streams, types } = this.#options;
    const query = { relay, since, until, limit: PAGE, ...(streams && { streams }), ...(types && { types }) };
    for (let after: string | null | undefined; after !== null;) {
      this.#options.signal?.throwIfAborted();
      const page = await this.#from.sent({ ...query, ...(after === undefined ? {} : { after }) });
      if (page.keptSince !== null && page.keptSince > since) this.report.keptSince = page.keptSince;
      if (page.messages.length > 0) await this.#judge(page.messages);
      this.#progress(page.messages.at(-1)?.createdAt ?? null);
      after = page.next;
    }
  }

  async #judge(messages: readonly SentMessage[]): Promise<void> {
    // A page may be a little longer where many messages have one time.
    for (let at = 0; at < messages.length; at += PAGE) {
      const part = messages.slice(at, at + PAGE);
      const { consumer } = this.report;
      const receipts = await this.#to.receipts({
        consumer,
        messages: part.map(({ id, createdAt }) => ({ id, createdAt })),
      });
      const absent = part.filter((message, i) => this.#isAbsent(message, receipts[i]!));
      this.report.checked += part.length;
      for (let n = 0; n < absent.length; n += LOOK_UP) await this.#lookUp(absent.slice(n, n + LOOK_UP));
    }
  }

  /** True for what has no receipt, though it could have one. */
  #isAbsent(message: SentMessage, receipt: ReceiptInfo): boolean {
    const { status } = receipt;
    if (status === "none") return true;
    if (status === "expired") this.report.unjudged++;
    else if (status === "processed") this.#judgeTime(message, receipt);
    else if ((receipt.receivedAt?.getTime() ?? 0) > this.#young) this.report.underway++;
    else this.#found(status === "failed" ? "failed" : "unhandled", message, receipt);
    return false;
  }

  #judgeTime(message: SentMessage, receipt: ReceiptInfo): void {
    const { lateMs = Number.POSITIVE_INFINITY } = this.#options;
    const ended = (receipt.processedAt ?? receipt.receivedAt)?.getTime() ?? 0;
    // The id of a scheduled message holds the time at which it was due.
    const due = uuidv7Time(message.id) ?? 0;
    const began = due <= ended ? Math.max(message.createdAt.getTime(), due) : message.createdAt.getTime();
    if (ended - began > lateMs) this.#found("late", message, receipt, { tookMs: ended - began });
    else this.report.arrived++;
  }

  /** What became of messages without receipts at their sender: only what was published, and a while ago, is missing. */
  async #lookUp(absent: readonly SentMessage[]): Promise<void> {
    const ids = [...new Set(absent.map(({ id }) => id))];
    const { relay } = this.report;
    const rows = Map.groupBy(await this.#from.find({ ids, relay, limit: 10 * LOOK_UP }), ({ id }) => id);
    const missing: MessageInfo[] = [];
    for (const id of ids) {
      const known = rows.get(id) ?? [];
      // After a rebase an id is there twice.
      const last = known.at(-1);
      if (last === undefined) this.report.unjudged++;
      else if (known.some(({ status }) => status !== "published")) this.report.unsent++;
      else if (last.publishedAt === null) this.report.skipped++;
      else if (last.publishedAt.getTime() > this.#young) this.report.underway++;
      else missing.push(last);
    }
    const messages = missing.map(messageOf).sort((a, b) => (a.position < b.position ? -1 : 1));
    const sent = await this.#requeue?.send(messages);
    for (const info of missing) {
      const { publishedAt, attempts, lastError } = info;
      const more = { publishedAt, ...(sent === undefined ? {} : { requeued: sent.has(info.id) }) };
      this.#found("missing", messageOf(info), { attempts, lastError }, more);
    }
  }

  /** Dead letters of what was enqueued in the time: their consumer never got them. */
  async listDead(): Promise<void> {
    const { relay, since, until } = this.report;
    const { streams, types } = this.#options;
    for (let after: DeadLetter | undefined; ;) {
      this.#options.signal?.throwIfAborted();
      const query = { relay, limit: LOOK_UP, contents: false };
      const page = await this.#from.dead({ ...query, ...(after === undefined ? {} : { after }) });
      for (const letter of page) {
        const { createdAt, stream, type } = letter;
        if (createdAt < since || createdAt >= until) continue;
        if (streams?.includes(stream) === false || types?.includes(type) === false) continue;
        this.#found("dead", letter, letter);
      }
      after = page.at(-1);
      if (page.length < LOOK_UP) return;
    }
  }

  async end(): Promise<AuditReport> {
    const info = (await this.#from.relays()).find(({ name }) => name === this.report.relay);
    if (info !== undefined) this.report.backlog = { pending: info.pending, oldestAgeMs: info.oldestPendingAgeMs };
    this.report.clean = isClean(this.report, this.#graceMs);
    return this.report;
  }

  #found(
    outcome: AuditOutcome,
    message: SentMessage,
    { attempts, lastError }: Pick<AuditFinding, "attempts" | "lastError">,
    more: Partial<AuditFinding> = {},
  ): void {
    const { id, position, stream, type, key, createdAt } = message;
    const place = { id, position, stream, type, key, createdAt };
    const finding = { outcome, ...place, publishedAt: null, tookMs: null, attempts, lastError, ...more };
    this.report[outcome]++;
    if (this.report.findings.length < (this.#options.limit ?? 1000)) this.report.findings.push(finding);
    this.#tell(finding);
  }
}

/** As the relay handed it out: nothing of what is known about it besides. */
function messageOf(info: MessageInfo): Message {
  const { id, stream, type, key, aggregateType, aggregateId, headers, body, createdAt } = info;
  return { id, position: info.position ?? 0n, stream, type, key, aggregateType, aggregateId, headers, body, createdAt };
}

/** The relay that was named, or the only one that delivers these streams. */
async function relayOf({ from, relay, streams }: AuditOptions): Promise<string> {
  const all = await from.admin.relays();
  const named = all.find(({ name }) => name === relay);
  if (named !== undefined) return named.name;
  const delivers = (stream: string, of: readonly string[] | null): boolean =>
    of?.includes(stream) ?? !stream.startsWith("inbox.");
  const fitting = all.filter(({ streams: of }) =>
    streams === undefined
      ? of?.every((stream) => stream.startsWith("inbox.")) !== true
      : streams.some((stream) => delivers(stream, of)),
  );
  const [only] = fitting;
  if (relay === undefined && only !== undefined && fitting.length === 1) return only.name;
  const names = all.map(({ name }) => name).join(", ");
  const problem =
    relay === undefined ? `${fitting.length} relays deliver these streams` : `There is no relay "${relay}"`;
  throw new TxboxError(relay === undefined ? "invalid_option" : "not_found", `audit: ${problem}`, {
    field: "relay",
    fix: names === "" ? "The store has none: start the relay that feeds the consumer" : `Name one of ${names}`,
  });
}
