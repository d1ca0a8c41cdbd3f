/** What the page and its server say to each other, as JSON: times are milliseconds since 1970, positions are texts. */

/** What can be changed from the page. */
export type AdminAction = "requeue" | "discard" | "edit" | "pause" | "resume" | "rewind" | "drop";

export const ADMIN_ACTIONS: readonly AdminAction[] = [
  "requeue",
  "discard",
  "edit",
  "pause",
  "resume",
  "rewind",
  "drop",
];

/** What is done to many messages, or cannot be undone: why it was done is asked for. */
export const WITH_REASON: readonly AdminAction[] = ["discard", "edit", "pause", "rewind", "drop"];

/** Sent with every request of the page; a form of another site cannot send it. */
export const PAGE_HEADER = "x-txbox-page";

export interface PageSession {
  title: string;
  color: string | null;
  /** A token has to be given first; nothing else is told until then. */
  tokenNeeded: boolean;
  /** The token can be given up again. */
  canSignOut: boolean;
  /** Who it is by the host's own login; null: the page asks for a name. */
  actor: string | null;
  may: AdminAction[];
  /** Whether the page may show bodies of messages. */
  payloads: "shown" | "redacted" | "hidden";
  stores: string[];
  /** Begins the address of a trace, such as `https://traces.example.com/trace/`; null: there is none. */
  traceUrl: string | null;
}

/** `good`: nothing to do. `attention`: it will hurt. `bad`: it needs a person. `unknown`: nothing is known yet. */
export type Level = "good" | "attention" | "bad" | "unknown";

/** One thing that is wrong, in words, with where to go and what to run. */
export interface Cause {
  level: Level;
  text: string;
  /** What comes of it, or why. */
  so: string | null;
  /** Where the page shows it: `dead?store=…`. */
  link: string | null;
  command: string | null;
  since: number | null;
}

export interface Verdict {
  level: Level;
  text: string;
  causes: Cause[];
}

export type RelayState = "flowing" | "waiting" | "still" | "out" | "alone" | "late" | "blocked" | "paused" | "idle";

export interface RelayView {
  store: string;
  name: string;
  state: RelayState;
  level: Level;
  /** The state in words. */
  words: string;
  since: number | null;
  streams: string[] | null;
  paused: boolean;
  /** `source`: how new messages come to one that was asked to stream, and why; null: by polling. */
  processes: { owner: string; lanes: number; leaseMs: number; since: number | null; source: string | null }[];
  freeLanes: number;
  published: string;
  pending: number;
  pendingEstimated: boolean;
  lagMs: number | null;
  parked: number;
  blockedKeys: number;
  /** Dead letters hold keys until they are requeued or discarded. */
  heldByDead: boolean;
  /** The error of one of these letters. */
  heldError: string | null;
  dead: number;
  inPerSecond: number | null;
  outPerSecond: number;
  lastError: string | null;
  lastErrorAt: number | null;
  holdsBackRetention: boolean;
}

export interface ConsumerView {
  store: string;
  name: string;
  level: Level;
  words: string;
  perSecond: number;
  /** Failed receipts that were not made good; null: only a long count could tell. */
  failed: number | null;
  lastError: string | null;
  lastErrorAt: number | null;
}

export interface StoreView {
  name: string;
  kind: string;
  /** Since when the store gives no answer, and what it says instead. */
  down: { since: number; error: string } | null;
  relays: RelayView[];
  consumers: ConsumerView[];
  scheduled: { count: number; estimated: boolean; nextAt: number | null };
  unread: { stream: string; oldestAgeMs: number }[];
  logBytes: number;
  receiptBytes: number;
}

/** A redrive under way, or one that has ended lately. */
export interface JobView {
  id: string;
  store: string;
  what: string;
  actor: string;
  perSecond: number;
  requeued: number;
  of: number | null;
  state: "running" | "waiting" | "done" | "stopped" | "failed";
  words: string;
  startedAt: number;
  endedAt: number | null;
}

export interface Overview {
  at: number;
  verdict: Verdict;
  stores: StoreView[];
  jobs: JobView[];
}

/** Ten seconds of a relay or a consumer: begin, went well, failed, dead, target out. */
export type HistoryPoint = [at: number, done: number, failed: number, dead: number, unavailable: number];

export interface HistorySeries {
  store: string;
  relay: string | null;
  consumer: string | null;
  points: HistoryPoint[];
  /** Age of the oldest pending message, as seen while a page was open. */
  lag: [at: number, lagMs: number][];
}

/** A process began or ended, as seen while a page was open. */
export interface HistoryMark {
  at: number;
  text: string;
}

export interface History {
  since: number;
  until: number;
  series: HistorySeries[];
  marks: HistoryMark[];
}

/** A text from outside, cut when it is long. */
export interface Shown {
  text: string;
  /** Characters of all of it; null: it is all there. */
  length: number | null;
}

export interface Contents {
  /** JSON for people, text, or bytes in base64. */
  kind: "json" | "text" | "base64" | "hidden";
  body: Shown;
  headers: Shown;
  /** Values were masked or replaced: what is shown is not what is stored. */
  masked: boolean;
}

export interface AttemptView {
  at: number | null;
  error: string;
}

export interface MessageView {
  store: string;
  id: string;
  position: string | null;
  stream: string;
  type: string;
  key: string | null;
  aggregate: string | null;
  correlationId: string | null;
  createdAt: number;
  deliverAt: number | null;
  relay: string | null;
  status: string;
  attempts: number;
  lastError: string | null;
  publishedAt: number | null;
}

export interface MessagesAnswer {
  messages: MessageView[];
  next: string | null;
  /** How far it looked: null: at all there is. */
  lookedBackTo: number | null;
  /** Stores that gave no answer. */
  missing: { store: string; error: string }[];
}

export interface GroupView {
  store: string;
  group: string;
  relay: string;
  stream: string;
  type: string;
  error: string;
  count: number;
  estimated: boolean;
  firstDiedAt: number;
  lastDiedAt: number;
  keys: number | null;
  command: string;
}

export interface GroupsAnswer {
  groups: GroupView[];
  /** Only the oldest letters were looked at: there are more. */
  cut: boolean;
  missing: { store: string; error: string }[];
}

export interface LetterView {
  store: string;
  relay: string;
  id: string;
  position: string;
  stream: string;
  type: string;
  key: string | null;
  state: "dead" | "requeued" | "discarded";
  command: "requeue" | "discard" | null;
  attempts: number;
  lastError: string;
  errors: AttemptView[];
  diedAt: number;
  createdAt: number;
  edited: boolean;
}

export interface LettersAnswer {
  letters: LetterView[];
  next: string | null;
}

export interface LetterAnswer {
  letter: LetterView;
  contents: Contents;
  original: Contents | null;
  /** What waits behind it; null: it holds up nothing, or that is not known. */
  waiting: MessageView[] | null;
  /** Why it cannot be edited here; null: it can. */
  notEditable: string | null;
}

export interface BlockedView {
  store: string;
  relay: string;
  stream: string;
  key: string | null;
  position: string | null;
  id: string | null;
  attempts: number;
  lastError: string | null;
  heldByDead: boolean;
  waiting: number;
  since: number | null;
  nextAttemptAt: number | null;
}

export interface BlockedAnswer {
  keys: BlockedView[];
  next: string | null;
}

export interface StoryRelay {
  store: string;
  relay: string | null;
  status: string;
  attempts: number;
  publishedAt: number | null;
  errors: AttemptView[];
}

export interface StoryReceipt {
  store: string;
  consumer: string;
  status: string;
  receivedAt: number | null;
  processedAt: number | null;
  attempts: number;
  lastError: string | null;
}

export interface StoryNode {
  /** Where it was enqueued; null: in none of these stores. */
  store: string | null;
  id: string;
  position: string | null;
  stream: string;
  type: string;
  key: string | null;
  aggregate: string | null;
  createdAt: number | null;
  deliverAt: number | null;
  relays: StoryRelay[];
  receipts: StoryReceipt[];
  contents: Contents;
  traceId: string | null;
  children: StoryNode[];
}

export interface StoryAnswer {
  asked: string;
  correlationId: string | null;
  roots: StoryNode[];
  /** There are more messages than are shown. */
  cut: boolean;
  missing: { store: string; error: string }[];
}

export interface DoctorFinding {
  store: string;
  check: string;
  severity: "error" | "warning" | "info";
  finding: string;
  consequence: string;
  fix: string;
  /** When this process saw it first; null: only now. */
  since: number;
}

export interface DoctorAnswer {
  at: number;
  findings: DoctorFinding[];
  checks: number;
}

export interface ChangeView {
  store: string;
  at: number;
  actor: string;
  reason: string | null;
  action: string;
  relay: string | null;
  count: number | null;
}

export interface ChangesAnswer {
  changes: ChangeView[];
}

/** Which dead letters an action is for. */
export interface LetterChoice {
  relay?: string;
  stream?: string;
  type?: string;
  key?: string;
  id?: string;
  position?: string;
  group?: string;
  all?: boolean;
}

/** What is asked for before an action: its number and its command. */
export interface ActionPreview {
  question: string;
  /** Null: it cannot be counted. */
  count: number | null;
  more: boolean;
  command: string;
  notes: string[];
}

export interface ActionRequest {
  action: AdminAction;
  store: string;
  relay?: string;
  choice?: LetterChoice;
  /** The number that was shown: no more than that are changed. */
  atMost?: number;
  /** Requeue so many in a second instead of all at once. */
  perSecond?: number;
  to?: string;
  payload?: string;
  headers?: string;
  actor?: string;
  reason?: string;
}

export interface ActionAnswer {
  done: string;
  count: number | null;
  job: string | null;
}

export interface Failure {
  error: string;
  fix: string | null;
}
