import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { isIP } from "node:net";
import type { AdminOptions, AdminUser } from "./admin-options.ts";
import { checkPermissions } from "./admin-options.ts";
import { GuessLimit } from "./guess-limit.ts";
import { ADMIN_ACTIONS, type AdminAction, PAGE_HEADER } from "./page-api.ts";
import { PageFailure } from "./page-failure.ts";

/** What the host knows of the connection; a `Request` has none of it. */
export interface Connection {
  /** The address of the other side, as the socket has it. */
  readonly remoteAddress?: string | undefined;
}

/** The person who asks, and what that person may change. */
export interface Visitor {
  /** Null: the page asks for a name. */
  readonly actor: string | null;
  readonly may: readonly AdminAction[];
}

const COOKIE = "txbox_page";
const SESSION_MS = 12 * 3_600_000;
/** With these a proxy stands in between: the address of the socket is the proxy's. */
const FORWARDED = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];

/**
 * Decides about every request before anything else sees it: where it comes from, by which name it asks, and who it is.
 * Without a token and without `authorize` only this machine itself is served.
 */
export class AdminGuard {
  readonly #options: AdminOptions;
  readonly #hosts: ReadonlySet<string>;
  readonly #guesses = new GuessLimit();

  constructor(options: AdminOptions) {
    this.#options = options;
    this.#hosts = new Set((options.hosts ?? []).map((host) => host.toLowerCase()));
  }

  get tokenNeeded(): boolean {
    return this.#options.token !== undefined;
  }

  /** Throws for a name that is not ours, and for what another site has a browser send. */
  checkOrigin(request: Request): void {
    const host = hostOf(request);
    const isOpen = this.#options.token === undefined && this.#options.authorize === undefined;
    const name = nameOf(host);
    const known = isLoopbackName(name) || this.#hosts.has(name) || (!isOpen && isIP(name) !== 0);
    if (!known) {
      throw new PageFailure(421, `This page is not reached by the name in the Host header`, {
        fix: "Add the name to `hosts` of createAdmin, or to --host of txbox admin",
      });
    }
    const site = request.headers.get("sec-fetch-site");
    const isNavigation = request.method === "GET" && request.headers.get("sec-fetch-mode") === "navigate";
    if (site !== null && site !== "same-origin" && site !== "none" && !isNavigation)
      throw new PageFailure(403, "Another site asked for this");
    const origin = request.headers.get("origin");
    if (origin !== null && !isSameHost(origin, host)) throw new PageFailure(403, "Another site asked for this");
    if (request.method === "GET" || request.method === "HEAD") return;
    if (request.headers.get(PAGE_HEADER) === null) {
      throw new PageFailure(403, `A change needs the header ${PAGE_HEADER}: a form of another site cannot send it`, {
        fix: `Send ${PAGE_HEADER}: 1`,
      });
    }
    const type = request.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
    if (type !== "application/json") throw new PageFailure(415, "A change is sent as application/json");
  }

  /** Who it is; throws 401 or 403. */
  async visitor(request: Request, connection: Connection | undefined): Promise<Visitor> {
    const { token, authorize } = this.#options;
    const all = this.#permitted();
    if (authorize !== undefined) {
      const user = await this.#authorized(request);
      if (user === null) throw new PageFailure(403, "The login of this service does not let you see this page");
      const own = user.permissions ?? ADMIN_ACTIONS;
      checkPermissions(own);
      return { actor: user.actor, may: all.filter((action) => own.includes(action)) };
    }
    if (token !== undefined) {
      if (!this.#hasToken(request, token, connection)) throw new PageFailure(401, "This page needs its token");
      return { actor: null, may: all };
    }
    this.#requireThisMachine(request, connection);
    return { actor: null, may: all };
  }

  /** A cookie for a right token; throws for a wrong one, more and more slowly. */
  signIn(request: Request, given: unknown, connection: Connection | undefined): string {
    const { token } = this.#options;
    if (token === undefined) throw new PageFailure(400, "This page has no token");
    const from = connection?.remoteAddress;
    if (typeof given !== "string" || !this.#guesses.token(from, given, () => isEqual(given, token)))
      throw new PageFailure(401, "That is not the token");
    return this.#cookie(request, sessionOf(token, Date.now() + SESSION_MS), SESSION_MS / 1000);
  }

  signOut(request: Request): string {
    return this.#cookie(request, "", 0);
  }

  #permitted(): readonly AdminAction[] {
    const { readOnly = false, permissions = ADMIN_ACTIONS } = this.#options;
    return readOnly ? [] : permissions;
  }

  async #authorized(request: Request): Promise<AdminUser | null> {
    try {
      const user: unknown = await this.#options.authorize!(request);
      if (typeof user !== "object" || user === null || !("actor" in user)) return null;
      return typeof user.actor === "string" && user.actor !== "" ? (user as AdminUser) : null;
    } catch {
      return null;
    }
  }

  #hasToken(request: Request, token: string, connection: Connection | undefined): boolean {
    const from = connection?.remoteAddress;
    const bearer = /^Bearer (.+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
    if (bearer !== undefined) return this.#guesses.token(from, bearer, () => isEqual(bearer, token));
    const cookies = (request.headers.get("cookie") ?? "").split(/; */);
    const sessions = cookies.flatMap((cookie) =>
      cookie.startsWith(`${COOKIE}=`) ? [cookie.slice(COOKIE.length + 1)] : [],
    );
    // One that is over is no guess.
    return sessions
      .filter(isCurrent)
      .some((session) => this.#guesses.session(from, session, () => isSession(session, token)));
  }

  #requireThisMachine({ headers }: Request, connection: Connection | undefined): void {
    const fix = "Give createAdmin a `token` or your own login as `authorize`";
    const from = connection?.remoteAddress;
    if (from === undefined)
      throw new PageFailure(403, "Without a login this page serves this machine alone, and the address is not known", {
        fix: `${fix}; or pass { remoteAddress } as toNodeHandler does`,
      });
    if (!isLoopbackAddress(from))
      throw new PageFailure(403, "Without a login this page serves this machine alone", { fix });
    if (FORWARDED.some((name) => headers.has(name)))
      throw new PageFailure(403, "Without a login this page serves this machine alone, and a proxy stands before it", {
        fix,
      });
  }

  #cookie(request: Request, value: string, maxAgeS: number): string {
    const path = `${(this.#options.prefix ?? "").replace(/\/$/, "")}/`;
    const secure = new URL(request.url).protocol === "https:" || request.headers.get("x-forwarded-proto") === "https";
    return `${COOKIE}=${value}; Path=${path}; Max-Age=${maxAgeS}; HttpOnly; SameSite=Strict${secure ? "; Secure" : ""}`;
  }
}

function hostOf(request: Request): string {
  return (request.headers.get("host") ?? new URL(request.url).host).toLowerCase();
}

/** Without port and brackets. */
function nameOf(host: string): string {
  return host.replace(/:\d{1,5}$/, "").replace(/^\[(.*)\]$/, "$1");
}

function isLoopbackName(name: string): boolean {
  return name === "localhost" || isLoopbackAddress(name);
}

export function isLoopbackAddress(address: string): boolean {
  const plain = address.replace(/^::ffff:/i, "");
  return plain === "::1" || (isIP(plain) === 4 && plain.startsWith("127."));
}

/** The scheme may differ: a proxy in front may have ended TLS. */
function isSameHost(origin: string, host: string): boolean {
  try {
    const { host: named, protocol } = new URL(origin);
    const port = protocol === "https:" ? ":443" : ":80";
    return named !== "" && (named === host || `${named}${port}` === host);
  } catch {
    return false;
  }
}

/** Takes the same time wherever the texts differ, and however long they are. */
function isEqual(a: string, b: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** Made from the token alone, so it works with every process that has the same token. */
function sessionOf(token: string, endsAt: number): string {
  const mac = createHmac("sha256", token).update(`txbox page ${endsAt}`).digest("base64url");
  return `${endsAt}.${mac}`;
}

function endOf(session: string): number {
  const [endsAt = ""] = session.split(".");
  return /^\d{1,15}$/.test(endsAt) ? Number(endsAt) : 0;
}

function isCurrent(session: string): boolean {
  const end = endOf(session);
  return end > Date.now() && end <= Date.now() + SESSION_MS;
}

function isSession(value: string, token: string): boolean {
  const [, mac = ""] = value.split(".");
  return isCurrent(value) && isEqual(mac, sessionOf(token, endOf(value)).split(".")[1]!);
}
