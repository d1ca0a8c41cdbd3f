import { DueQueue } from "./due-queue.ts";

/** A key whose first message did not go through: later ones are parked behind it. */
export interface WaitingKey {
  readonly name: string;
  /** Monotonic time at which it is tried again. */
  dueAt: number;
  /** A dead letter holds it until it is requeued or discarded. */
  held: boolean;
  /** Messages parked, written or about to be; those that are tried at this moment included. */
  parked: number;
  /** Its messages are claimed at this moment. */
  draining: boolean;
  /** The part of the target that its first message waits for. */
  route: string | undefined;
}

/** A part of the target that is out, with the keys that wait for it. */
interface Route<K> {
  until: number;
  readonly waiting: Set<K>;
  /** The few keys that test whether it is back. */
  readonly probing: Set<K>;
}

/** So many keys at a time test whether a route is back. */
const PROBES = 4;

/**
 * What an owner knows of keys that wait, and when each may be tried again. A look costs little, however many keys wait:
 * so call `schedule` whenever a key may have become ready, or its time has changed.
 */
export class WaitingKeys<K extends WaitingKey> {
  readonly #isReady: (key: K) => boolean;
  readonly #keys = new Map<string, K>();
  readonly #queue = new DueQueue<K>();
  readonly #routes = new Map<string, Route<K>>();
  #parked = 0;

  /** `isReady`: nothing but its time keeps the key from being claimed. */
  constructor(isReady: (key: K) => boolean) {
    this.#isReady = isReady;
  }

  get size(): number {
    return this.#keys.size;
  }

  /** Messages parked behind all of them. */
  get parked(): number {
    return this.#parked;
  }

  get(name: string): K | undefined {
    return this.#keys.get(name);
  }

  /** Adds a key, in the place of one with its name. */
  put(key: K): K {
    this.#parked += key.parked - (this.#keys.get(key.name)?.parked ?? 0);
    this.#keys.set(key.name, key);
    this.schedule(key);
    return key;
  }

  park(key: K, count: number): void {
    key.parked += count;
    this.#parked += count;
  }

  delete(key: K): void {
    if (this.#keys.get(key.name) !== key) return;
    this.#keys.delete(key.name);
    this.#parked -= key.parked;
    this.#leaveRoute(key);
  }

  clear(): void {
    this.#keys.clear();
    this.#queue.clear();
    this.#routes.clear();
    this.#parked = 0;
  }

  schedule(key: K): void {
    this.#leaveRouteInTime(key);
    const route = key.route === undefined ? undefined : this.#routes.get(key.route);
    if (route === undefined) key.route = undefined;
    route?.probing.delete(key);
    if (!this.#mayGo(key)) return;
    if (route === undefined) this.#queue.add(key.dueAt, key);
    else route.waiting.add(key);
  }

  /** The key waits for a route, which is left alone until then. */
  routeOut(key: K, name: string, until: number): void {
    if (key.route !== name) this.#leaveRoute(key);
    key.route = name;
    const route = this.#routes.get(name);
    if (route === undefined) this.#routes.set(name, { until, waiting: new Set(), probing: new Set() });
    else route.until = Math.max(route.until, until);
  }

  /** The route has answered and the message failed by itself: its key waits for its own time. */
  leaveRoute(key: K): void {
    this.#leaveRoute(key);
    key.route = undefined;
  }

  /** The key waits for no route any more; after a message that went through, neither does any other. */
  routeBack(key: K, now: number): void {
    const { route: name } = key;
    if (name === undefined) return;
    const route = this.#routes.get(name);
    this.#routes.delete(name);
    for (const waiting of [key, ...(route?.waiting ?? []), ...(route?.probing ?? [])]) {
      waiting.route = undefined;
      waiting.dueAt = Math.min(waiting.dueAt, now);
      this.schedule(waiting);
    }
  }

  /**
   * Takes keys whose time has come, those due for longest first. A key that is not claimed then must be scheduled
   * again.
   */
  due(now: number, limit: number, accept: (key: K) => boolean = () => true): K[] {
    // Sets: a key may stand in the queue twice.
    const taken = new Set<K>();
    const refused = new Set<K>();
    for (let first = this.#nextQueued(); first !== undefined && first.at <= now; first = this.#nextQueued()) {
      if (taken.size === limit) break;
      this.#queue.take();
      (accept(first.item) ? taken : refused).add(first.item);
    }
    for (const key of refused) this.#queue.add(key.dueAt, key);
    for (const route of this.#routes.values()) this.#probe(route, now, limit, accept, taken);
    return [...taken];
  }

  /** When a key may be tried again. */
  nextDueAt(): number | undefined {
    let next = this.#nextQueued()?.at;
    for (const { until, waiting, probing } of this.#routes.values()) {
      if (waiting.size > 0 && probing.size === 0 && (next === undefined || until < next)) next = until;
    }
    return next;
  }

  #probe(route: Route<K>, now: number, limit: number, accept: (key: K) => boolean, taken: Set<K>): void {
    if (route.until > now || route.probing.size > 0) return;
    for (const key of route.waiting) {
      if (route.probing.size === PROBES || taken.size >= limit) return;
      if (this.#mayGo(key) && !accept(key)) continue;
      route.waiting.delete(key);
      if (!this.#mayGo(key)) continue;
      route.probing.add(key);
      taken.add(key);
    }
  }

  /** A key that has to wait longer than its route does no longer waits with the route. */
  #leaveRouteInTime(key: K): void {
    const route = key.route === undefined ? undefined : this.#routes.get(key.route);
    if (route === undefined || key.dueAt <= route.until) return;
    this.#leaveRoute(key);
    key.route = undefined;
  }

  #leaveRoute(key: K): void {
    const route = key.route === undefined ? undefined : this.#routes.get(key.route);
    route?.waiting.delete(key);
    route?.probing.delete(key);
    if (route?.waiting.size === 0 && route.probing.size === 0) this.#routes.delete(key.route!);
  }

  /** The first of the queue that still stands for its key. */
  #nextQueued(): { readonly at: number; readonly item: K } | undefined {
    const queue = this.#queue;
    for (let first = queue.first; first !== undefined; first = queue.first) {
      const { at, item } = first;
      if (this.#mayGo(item) && item.route === undefined && item.dueAt === at) return first;
      queue.take();
    }
    return undefined;
  }

  #mayGo(key: K): boolean {
    return this.#keys.get(key.name) === key && !key.held && !key.draining && this.#isReady(key);
  }
}
