import { redrive, type RedriveProgress, type RedriveReport } from "../admin/redrive.ts";
import type { Admin, DeadChoice } from "../core/contracts.ts";
import { printable } from "../core/printable.ts";
import { authorOf, type AuthorValues } from "./author-flags.ts";
import type { CliContext } from "./cli-context.ts";
import { EXIT } from "./exit-code.ts";
import { formatTime, plural } from "./format-values.ts";
import { parseStart } from "./parse-time.ts";
import { stopSignal } from "./stop-signal.ts";
import { UsageError } from "./usage-error.ts";

const PROGRESS_MS = 2000;

interface RedriveFlags extends AuthorValues {
  readonly rate?: number;
  readonly "start-at"?: string;
  readonly rounds?: number;
}

/** `txbox dead redrive`: runs until all are requeued, or until it is stopped. */
export async function redriveLetters(context: CliContext, choice: DeadChoice, flags: RedriveFlags): Promise<number> {
  const { rate, rounds } = flags;
  if (rate === undefined) throw new UsageError("How fast? Give --rate N, letters per second", { command: "dead" });
  const startAt = flags["start-at"] === undefined ? undefined : parseStart("--start-at", flags["start-at"], "dead");
  const { store } = await context.open();
  if (startAt !== undefined) context.output.note(`Begins at ${String(formatTime(startAt))}.`);
  const by = authorOf(flags);
  const report = await redrive(store, {
    ...choice,
    perSecond: rate,
    signal: stopSignal(),
    onProgress: progressOf(context),
    ...(startAt === undefined ? {} : { startAt }),
    ...(rounds === undefined ? {} : { rounds }),
    ...(by === undefined ? {} : { by }),
  });
  if (report.stopped) await noteStop(store.admin, choice, by, report);
  context.output.result({ ...report }, () => reportText(report));
  return report.stopped || (report.diedAgain ?? 0) > 0 ? EXIT.failed : EXIT.ok;
}

async function noteStop(
  admin: Admin,
  choice: DeadChoice,
  by: ReturnType<typeof authorOf>,
  { requeued }: RedriveReport,
): Promise<void> {
  const { relay } = choice;
  const stopped = { what: "txbox dead redrive", requeued, ...(relay === undefined ? {} : { relay }) };
  await (by === undefined ? admin : admin.by(by)).noteStop(stopped);
}

function progressOf({ output }: CliContext): (progress: RedriveProgress) => void {
  let toldAt = performance.now();
  let waited: string | null = null;
  return ({ requeued, round, waitingFor }) => {
    const isNews = waitingFor !== null && waitingFor !== waited;
    if (!isNews && performance.now() - toldAt < PROGRESS_MS) return;
    toldAt = performance.now();
    waited = waitingFor;
    const so = `${plural(requeued, "letter")} requeued${round > 1 ? `, round ${round}` : ""}`;
    output.note(waitingFor === null ? so : `${so}; waiting: ${printable(waitingFor)}`);
  };
}

function reportText({ requeued, rounds, diedAgain, stopped }: RedriveReport): string {
  const lines = [`Requeued ${plural(requeued, "letter")}${rounds > 1 ? ` in ${rounds} rounds` : ""}.`];
  if (diedAgain !== null)
    lines.push(diedAgain === 0 ? "None died again." : `${plural(diedAgain, "letter")} died again.`);
  if (stopped) lines.push("It was stopped: the rest is where it was.");
  return `${lines.join("\n")}\n`;
}
