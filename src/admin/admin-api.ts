import type { DeadGroup, Store } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import { contractsOf } from "../core/event-map.ts";
import { oneLook } from "../core/one-look.ts";
import { checkList, diagnose } from "../doctor/diagnose.ts";
import { actionRequest, stopRequest } from "./action-request.ts";
import { carryOut, commandOf, previewAction } from "./admin-actions.ts";
import type { Visitor } from "./admin-guard.ts";
import type { AdminOptions } from "./admin-options.ts";
import { findMessages, isIndexed, SEARCH_FIELDS } from "./find-messages.ts";
import type { LiveReadings } from "./live-readings.ts";
import { blockedView, letterView, messageView } from "./message-views.ts";
import { messageStory } from "./message-story.ts";
import type * as Api from "./page-api.ts";
import { WITH_REASON } from "./page-api.ts";
import { placeOf, placeText } from "./page-places.ts";
import { PageFailure } from "./page-failure.ts";
import { PageQuery } from "./page-query.ts";
import { RateLimit } from "./rate-limit.ts";
import type { NewJob, RedriveJobs } from "./redrive-jobs.ts";
import { contentsOf, errorText, hideErrors } from "./shown-text.ts";

const DOCTOR_EVERY_MS = 5000;
const MOST_GROUPS = 1000;
const LETTER_FILTERS = ["relay", "stream", "type", "key", "id", "group"] as const;

export interface AdminApiOptions {
  readonly options: AdminOptions;
  readonly readings: LiveReadings;
  readonly jobs: RedriveJobs;
}

/** What the page asks and what it tells, by path. Everything it gives is JSON. */
export class AdminApi {
  readonly #options: AdminOptions;
  readonly #readings: LiveReadings;
  readonly #jobs: RedriveJobs;
  /** Look-ups by an index are cheap; what reads page by page, counts or runs every check is not. */
  readonly #cheap = new RateLimit({ perSecond: 50, burst: 200 });
  readonly #expensive = new RateLimit({ perSecond: 4, burst: 20 });
  readonly #doctor: () => Promise<Api.DoctorAnswer>;
  readonly #firstSeen = new Map<string, number>();
  #diagnosis: Api.DoctorAnswer | undefined;

  constructor({ options, readings, jobs }: AdminApiOptions) {
    this.#options = options;
    this.#readings = readings;
    this.#jobs = jobs;
    this.#doctor = oneLook(() => this.#diagnose());
  }

  async get(path: string, values: URLSearchParams): Promise<unknown> {
    const query = (...known: readonly string[]): PageQuery => new PageQuery(values, known);
    switch (path) {
      case "overview":
        query();
        return this.#readings.overview();
      case "history":
        query();
        return this.#readings.history();
      case "messages":
        return this.#messages(query(...SEARCH_FIELDS));
      case "story":
        return this.#story(query("id", "store"));
      case "groups":
        return this.#groups(query("store", "relay", "stream", "type"));
      case "letters":
        return this.#letters(query("store", "state", "after", "limit", ...LETTER_FILTERS));
      case "letter":
        return this.#letter(query("store", "relay", "position"));
      case "blocked":
        return this.#blocked(query("store", "relay", "stream", "key", "after", "limit"));
      case "waiting":
        return this.#waiting(query("store", "relay", "stream", "key"));
      case "changes":
        return this.#changes(query("store", "relay"));
      case "doctor":
        query();
        return this.#diagnosed();
      default:
        throw new PageFailure(404, "There is nothing here");
    }
  }

  async post(path: string, body: unknown, visitor: Visitor): Promise<unknown> {
    if (path === "stop") return this.#stop(body, visitor);
    const request = actionRequest(body);
    const store = this.#storeOf(request.store);
    if (path === "preview") {
      this.#take(this.#expensive);
      return previewAction(store, request, this.#hasSeveral);
    }
    if (path !== "act") throw new PageFailure(404, "There is nothing here");
    this.#take(this.#cheap);
    const { action } = request;
    this.#requireRight(visitor, action);
    if (action === "edit" && this.#options.redact !== undefined)
      throw new PageFailure(403, "This page does not show whole bodies, so it cannot edit them", {
        fix: commandOf(request, this.#hasSeveral),
      });
    const author = authorOf(visitor, request.actor, request.reason);
    if (author.reason === undefined && WITH_REASON.includes(action))
      throw new PageFailure(400, `Why? To ${action} needs a reason`, { fix: "Give reason" });
    const contracts = contractsOf("createAdmin", this.#options.events);
    return carryOut(request.store, store, request, author, { jobs: this.#jobs, contracts });
  }

  async #stop(body: unknown, visitor: Visitor): Promise<{ done: string }> {
    this.#requireRight(visitor, "requeue");
    const { job, actor, reason } = stopRequest(body);
    await this.#jobs.stop(job, authorOf(visitor, actor, reason));
    return { done: "It is stopped. What was requeued stays so." };
  }

  #requireRight({ may }: Visitor, action: Api.AdminAction): void {
    if (may.includes(action)) return;
    const isReadOnly = this.#options.readOnly === true;
    throw new PageFailure(403, isReadOnly ? "This page is read-only" : `You may not ${action} on this page`, {
      fix: isReadOnly
        ? "Start it without readOnly, or use the command line"
        : "Ask for the right, or use the command line",
    });
  }

  #take(limit: RateLimit): void {
    const retryAfterMs = limit.take();
    if (retryAfterMs > 0)
      throw new PageFailure(429, "Too many questions at once", { fix: "Try again in a moment", retryAfterMs });
  }

  get #hasSeveral(): boolean {
    return Object.keys(this.#options.stores).length > 1;
  }

  #storeOf(name: string): Store {
    const { stores } = this.#options;
    const store = Object.hasOwn(stores, name) ? stores[name] : undefined;
    if (store !== undefined) return store;
    throw new PageFailure(404, "There is no such store", { fix: `There are ${Object.keys(stores).join(", ")}` });
  }

  /** One store, or all of them. */
  #storesOf(name: string | undefined): (readonly [string, Store])[] {
    return name === undefined ? Object.entries(this.#options.stores) : [[name, this.#storeOf(name)]];
  }

  async #messages(query: PageQuery): Promise<Api.MessagesAnswer> {
    this.#take(isIndexed(query) ? this.#cheap : this.#expensive);
    return findMessages(this.#storesOf(query.text("store")), query);
  }

  async #story(query: PageQuery): Promise<Api.StoryAnswer> {
    this.#take(this.#expensive);
    query.text("store");
    return messageStory(this.#options.stores, query.need("id"), this.#options.redact);
  }

  async #groups(query: PageQuery): Promise<Api.GroupsAnswer> {
    this.#take(this.#expensive);
    const answer: Api.GroupsAnswer = { groups: [], cut: false, missing: [] };
    const filter = query.some("relay", "stream", "type");
    const stores = this.#storesOf(query.text("store"));
    for (const [name, store] of stores) {
      try {
        const groups = await store.admin.deadGroups({ ...filter, limit: MOST_GROUPS });
        answer.cut ||= groups.length === MOST_GROUPS;
        for (const group of groups) answer.groups.push(groupView(name, group, this.#hasSeveral));
      } catch (error) {
        if (stores.length === 1) throw error;
        answer.missing.push({ store: name, error: errorText(describeError(error)) });
      }
    }
    answer.groups.sort((a, b) => b.count - a.count);
    return answer;
  }

  async #letters(query: PageQuery): Promise<Api.LettersAnswer> {
    this.#take(this.#cheap);
    const name = query.need("store");
    const limit = query.integer("limit", { min: 1, max: 500, fallback: 100 });
    const after = query.text("after");
    const state = query.text("state") ?? "dead";
    if (state !== "dead" && state !== "requeued" && state !== "discarded")
      throw new PageFailure(400, "There is no such state", { fix: "There are dead, requeued and discarded" });
    const letters = await this.#storeOf(name).admin.dead({
      ...query.some(...LETTER_FILTERS),
      state,
      limit,
      contents: false,
      ...(after === undefined ? {} : { after: placeOf(after) }),
    });
    const last = letters.length === limit ? letters.at(-1) : undefined;
    return {
      letters: letters.map((letter) => letterView(name, letter)),
      next: last === undefined ? null : placeText(last),
    };
  }

  async #letter(query: PageQuery): Promise<Api.LetterAnswer> {
    this.#take(this.#cheap);
    const name = query.need("store");
    const { admin } = this.#storeOf(name);
    const relay = query.need("relay");
    query.need("position");
    const position = query.position("position")!;
    const states = ["dead", "requeued", "discarded"] as const;
    const found = await Promise.all(states.map((state) => admin.dead({ relay, position, state, limit: 1 })));
    const [letter] = found.flat();
    if (letter === undefined) throw new PageFailure(404, "There is no such letter any more");
    const { redact } = this.#options;
    const contents = contentsOf(name, letter, redact);
    const original = letter.edited ? await admin.original({ relay, position }) : null;
    const { stream, key } = letter;
    const behind = key === null ? null : await admin.waiting({ relay, stream, key, limit: 50, contents: false });
    return {
      letter: letterView(name, letter),
      contents,
      original: original === null ? null : contentsOf(name, original, redact),
      waiting: behind?.filter((one) => one.id !== letter.id).map((one) => messageView(name, one)) ?? null,
      notEditable: whyNotEditable(contents),
    };
  }

  async #blocked(query: PageQuery): Promise<Api.BlockedAnswer> {
    this.#take(this.#expensive);
    const name = query.need("store");
    const limit = query.integer("limit", { min: 1, max: 500, fallback: 100 });
    const after = query.text("after");
    const keys = await this.#storeOf(name).admin.blocked({
      ...query.some("relay", "stream", "key"),
      limit,
      ...(after === undefined ? {} : { after: placeOf(after) }),
    });
    const last = keys.length === limit ? keys.at(-1) : undefined;
    return { keys: keys.map((key) => blockedView(name, key)), next: last === undefined ? null : placeText(last) };
  }

  async #waiting(query: PageQuery): Promise<{ messages: Api.MessageView[] }> {
    this.#take(this.#cheap);
    const name = query.need("store");
    const which = { relay: query.need("relay"), stream: query.need("stream"), key: query.need("key"), contents: false };
    const messages = await this.#storeOf(name).admin.waiting(which);
    return { messages: messages.map((message) => messageView(name, message)) };
  }

  async #changes(query: PageQuery): Promise<Api.ChangesAnswer> {
    this.#take(this.#cheap);
    const answer: Api.ChangesAnswer = { changes: [] };
    for (const [store, of] of this.#storesOf(query.text("store"))) {
      const { changes } = await of.admin.changes({ ...query.some("relay"), limit: 100 });
      for (const { at, actor, reason, action, relay, count } of changes)
        answer.changes.push({ store, at: at.getTime(), actor, reason, action, relay, count });
    }
    answer.changes.sort((a, b) => b.at - a.at);
    return answer;
  }

  /** Requests within a few seconds get the same. */
  async #diagnosed(): Promise<Api.DoctorAnswer> {
    if (this.#diagnosis !== undefined && Date.now() - this.#diagnosis.at < DOCTOR_EVERY_MS) return this.#diagnosis;
    return this.#doctor();
  }

  async #diagnose(): Promise<Api.DoctorAnswer> {
    const at = Date.now();
    const findings: Api.DoctorFinding[] = [];
    let checks = 0;
    for (const [store, of] of Object.entries(this.#options.stores)) {
      checks += checkList(of).length;
      for (const { check, severity, finding, consequence, fix } of await diagnose(of)) {
        const shown = hideErrors({ finding, consequence, fix });
        findings.push({ store, check, severity, ...shown, since: this.#seen(JSON.stringify([store, check]), at) });
      }
    }
    const found = new Set(findings.map(({ store, check }) => JSON.stringify([store, check])));
    for (const key of this.#firstSeen.keys()) if (!found.has(key)) this.#firstSeen.delete(key);
    const rank = ["error", "warning", "info"];
    findings.sort((a, b) => rank.indexOf(a.severity) - rank.indexOf(b.severity) || a.since - b.since);
    this.#diagnosis = { at, findings, checks };
    return this.#diagnosis;
  }

  #seen(key: string, at: number): number {
    const known = this.#firstSeen.get(key) ?? at;
    this.#firstSeen.set(key, known);
    return known;
  }
}

/** Who it is and why, as it is noted. The name of a login counts, whatever the request says. */
function authorOf(visitor: Visitor, named: string | undefined, why: string | undefined): NewJob["author"] {
  const actor = visitor.actor ?? named?.trim();
  if (actor === undefined || actor === "") throw new PageFailure(400, "Who are you?", { fix: "Give actor" });
  const reason = why?.trim() ?? "";
  return { actor, ...(reason === "" ? {} : { reason }) };
}

function groupView(store: string, group: DeadGroup, several: boolean): Api.GroupView {
  const { relay, firstDiedAt, lastDiedAt, count, estimated, keys } = group;
  const choice = { relay, group: group.group };
  return {
    store,
    group: group.group,
    relay,
    ...hideErrors({ stream: group.stream, type: group.type, error: group.error }),
    count,
    estimated,
    firstDiedAt: firstDiedAt.getTime(),
    lastDiedAt: lastDiedAt.getTime(),
    keys,
    command: commandOf({ action: "requeue", store, choice }, several),
  };
}

function whyNotEditable({ kind, masked, body, headers }: Api.Contents): string | null {
  if (kind === "hidden") return "Bodies are hidden on this page. Edit it on the command line: txbox dead edit";
  if (masked) return "Some values are masked here. Edit it on the command line: txbox dead edit";
  if (kind !== "json") return "Its body is no JSON. Edit it on the command line: txbox dead edit";
  if (body.length !== null || headers.length !== null)
    return "It is too long to be edited here. Edit it on the command line: txbox dead edit";
  return null;
}
