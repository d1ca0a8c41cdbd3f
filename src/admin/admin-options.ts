import type { Store } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";
import { contractsOf, type Events } from "../core/event-map.ts";
import type { EventMap } from "../core/message.ts";
import { rejectUnknownOptions, requireFunction, requireName } from "../core/options.ts";
import { ADMIN_ACTIONS, type AdminAction } from "./page-api.ts";
import type { RedactOption } from "./shown-text.ts";

/** The person at the page, as the host's own login knows it. */
export interface AdminUser {
  /** Noted with every change. */
  actor: string;
  /** What this person may do, within `permissions`. Default: all of that. */
  permissions?: readonly AdminAction[];
}

export interface AdminOptions {
  /** The stores to show, by the names that people give them. */
  stores: Readonly<Record<string, Store>>;
  /** Asked for before anything is shown; at least 16 characters. */
  token?: string;
  /** The host's own login: who it is, or null to refuse. What it throws refuses too. */
  authorize?: (request: Request) => AdminUser | null | Promise<AdminUser | null>;
  /** Names under which the page is reached, beside this machine's own and addresses: others are refused. */
  hosts?: readonly string[];
  /** Nothing can be changed. Default false. */
  readOnly?: boolean;
  /** What can be changed. Default: everything. */
  permissions?: readonly AdminAction[];
  /** What is shown of bodies and headers. Fields named like secrets are masked whatever it gives. */
  redact?: RedactOption;
  /** Contracts of messages: an edit that breaks one is refused, with what does not fit. */
  events?: Events<EventMap>;
  /** Stands on top of the page. Default "txbox". */
  title?: string;
  /** The page's colour, such as "#b91c1c" for production: #rgb or #rrggbb. */
  color?: string;
  /** The path under which the page is mounted, such as "/txbox". Default: the root. */
  prefix?: string;
  /** What comes before a trace id in the address of a trace. */
  traceUrl?: string;
}

const KNOWN: readonly (keyof AdminOptions)[] = [
  "stores",
  "token",
  "authorize",
  "hosts",
  "readOnly",
  "permissions",
  "redact",
  "events",
  "title",
  "color",
  "prefix",
  "traceUrl",
];
const OF = "createAdmin";
const MIN_TOKEN = 16;

/** Throws `invalid_option`, naming field and fix. */
export function checkAdminOptions(options: AdminOptions): void {
  rejectUnknownOptions(OF, options, KNOWN);
  const { stores, token, authorize, hosts = [], readOnly, permissions = [], redact, title, color, prefix } = options;
  if (typeof stores !== "object" || stores === null || Object.keys(stores).length === 0)
    throw invalid("stores", "must have at least one store", "Pass stores: { orders: createPostgresStore({ client }) }");
  for (const [name, store] of Object.entries(stores)) {
    requireName(OF, "the name of a store", name);
    requireFunction(
      OF,
      `stores.${name}`,
      // oxlint-disable-next-line typescript/unbound-method -- only looked at
      store?.admin?.figures,
      "Pass what createPostgresStore or createMongoStore gave",
    );
  }
  if (token !== undefined && (typeof token !== "string" || token.length < MIN_TOKEN || token.length > 1000))
    throw invalid("token", `must be a text of at least ${MIN_TOKEN} characters`, "Make one: openssl rand -base64 32");
  if (authorize !== undefined) requireFunction(OF, "authorize", authorize, "Pass (request) => ({ actor }) or null");
  if (token !== undefined && authorize !== undefined)
    throw invalid("token", "and authorize are both given", "Give one of them: authorize can check a token itself");
  if (!Array.isArray(hosts) || hosts.some((host) => typeof host !== "string" || !/^[\w.-]{1,253}$/.test(host)))
    throw invalid("hosts", "must be names without port", 'Pass hosts: ["ops.example.com"]');
  if (readOnly !== undefined && typeof readOnly !== "boolean")
    throw invalid("readOnly", "must be true or false", "Set readOnly: true");
  checkPermissions(permissions);
  if (redact !== undefined && redact !== "hide")
    requireFunction(OF, "redact", redact, 'Pass "hide" or ({ payload, headers }) => ({ payload, headers })');
  if (title !== undefined && (typeof title !== "string" || title === "" || title.length > 60))
    throw invalid("title", "must be a text of 1 to 60 characters", 'Set title: "orders, production"');
  if (color !== undefined && !(typeof color === "string" && /^#(?:[0-9a-f]{3}|[0-9a-f]{6})$/i.test(color)))
    throw invalid("color", "must be #rgb or #rrggbb", 'Set color: "#b91c1c"');
  if (prefix !== undefined && !(typeof prefix === "string" && /^(?:\/[\w.~-]+)*\/?$/.test(prefix)))
    throw invalid("prefix", "must be a path such as /txbox", 'Set prefix: "/txbox"');
  checkTraceUrl(options.traceUrl);
  contractsOf(OF, options.events);
}

export function checkPermissions(permissions: readonly unknown[]): void {
  if (Array.isArray(permissions) && permissions.every((one) => ADMIN_ACTIONS.includes(one as AdminAction))) return;
  throw invalid("permissions", "must be a list of actions", `The actions are ${ADMIN_ACTIONS.join(", ")}`);
}

function checkTraceUrl(traceUrl: unknown): void {
  if (traceUrl === undefined) return;
  const fix = 'Set traceUrl: "https://traces.example.com/trace/"';
  if (typeof traceUrl !== "string" || !/^https?:\/\//.test(traceUrl)) throw invalid("traceUrl", "must be a URL", fix);
}

function invalid(field: string, what: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", `${OF}: ${field} ${what}`, { field, fix });
}
