import type { HealthCheck, RelayInfo, Store, Symptom } from "../core/contracts.ts";
import { shellWord } from "../core/pasted.ts";
import { formatMs, plural } from "../core/plain-words.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
/** Of `maxParked`. */
const NEARLY_FULL = 0.8;
/** So many streams or consumers are named. */
const MOST_NAMED = 5;

/** What can be wrong with every store, seen through its admin. */
export function commonChecks({ admin }: Store): readonly HealthCheck[] {
  const ofRelays = (symptomOf: (relay: RelayInfo) => Symptom | undefined) => async (): Promise<Symptom[]> =>
    (await admin.relays()).flatMap((relay) => symptomOf(relay) ?? []);
  return [
    {
      name: "paused_relay",
      looksAt: "relays that were paused",
      needs: "tables",
      run: ofRelays(({ name, paused, pending, oldestPendingAgeMs }) =>
        paused
          ? {
              severity: pending > 0 ? "warning" : "info",
              finding: `Relay "${name}" is paused${waiting(pending, oldestPendingAgeMs)}`,
              consequence: "It publishes nothing until it is resumed, and the log is kept for it",
              fix: `txbox relays resume ${shellWord(name)}`,
            }
          : undefined,
      ),
    },
    {
      name: "idle_relay",
      looksAt: "relays with messages before them that no process runs",
      needs: "tables",
      run: ofRelays(({ name, paused, pending, oldestPendingAgeMs, lanes }) =>
        !paused && pending > 0 && lanes.every(({ owner, leaseMs }) => owner === null || leaseMs === 0)
          ? {
              severity: "error",
              finding: `No process runs relay "${name}"${waiting(pending, oldestPendingAgeMs)}`,
              consequence: "Its messages are not published, and the log is kept for it and grows",
              fix: `Start it: txbox relay ${shellWord(name)}. If it is not wanted any more: txbox relays drop ${shellWord(name)}`,
            }
          : undefined,
      ),
    },
    {
      name: "old_backlog",
      looksAt: "messages that wait for longer than ten minutes at a relay that runs",
      needs: "tables",
      run: ofRelays(({ name, paused, pending, oldestPendingAgeMs, blockedKeys, lanes }) =>
        !paused &&
        (oldestPendingAgeMs ?? 0) > 10 * MINUTE_MS &&
        lanes.some(({ owner, leaseMs }) => owner !== null && leaseMs > 0)
          ? {
              severity: blockedKeys > 0 ? "warning" : "error",
              finding: `Relay "${name}" runs${waiting(pending, oldestPendingAgeMs)}`,
              consequence: "Its consumers are as late as that",
              fix: "Look at its events and log for outages of the target: txbox status; txbox dead list",
            }
          : undefined,
      ),
    },
    {
      name: "parked_messages",
      looksAt: "messages behind failed ones, near to so many that no new ones are taken",
      needs: "tables",
      run: ofRelays((relay) => nearlyFull(relay)),
    },
    {
      name: "dead_letters",
      looksAt: "dead letters that have waited for a decision for a day",
      needs: "tables",
      run: async () => {
        const relays = (await admin.relays()).filter(({ dead }) => dead > 0);
        const symptoms: Symptom[] = [];
        for (const { name, dead } of relays) {
          const [oldest] = await admin.dead({ relay: name, limit: 1, contents: false });
          const ageMs = oldest === undefined ? 0 : Date.now() - oldest.diedAt.getTime();
          if (ageMs < DAY_MS) continue;
          symptoms.push({
            severity: "warning",
            finding: `Relay "${name}" has ${dead} dead letters, the first of them for ${formatMs(ageMs)}: ${oldest!.lastError.slice(0, 200)}`,
            consequence: "Their consumers never got them. Requeued after the receipts' time, they are refused",
            fix: `Mend the cause, then txbox dead requeue --relay ${shellWord(name)} --all; or txbox dead discard --relay ${shellWord(name)} --all`,
          });
        }
        return symptoms;
      },
    },
    {
      name: "unread_streams",
      looksAt: "streams that no relay reads",
      needs: "tables",
      run: async () =>
        (await admin.figures()).unread.slice(0, MOST_NAMED).map(({ stream, oldestAgeMs }) => ({
          severity: "warning",
          finding: `No relay reads the stream ${stream}, and its first message has waited ${formatMs(oldestAgeMs)}`,
          consequence: "Nothing delivers its messages, and they go when their retention is over",
          fix: "Start a relay that reads it: txbox relay NAME. Or correct the name of the stream, or `streams` of a relay",
        })),
    },
    {
      name: "failed_receipts",
      looksAt: "receipts of attempts that failed and were not made good",
      needs: "tables",
      run: async () =>
        ((await admin.figures()).failedReceipts ?? []).slice(0, MOST_NAMED).map(({ consumer, count }) => ({
          severity: "warning",
          finding: `Consumer "${consumer}" has ${count === 1 ? "1 receipt of a failed attempt" : `${plural(count, "receipt")} of failed attempts`}`,
          consequence: "These messages have not taken effect: they are tried again, or were given up as dead letters",
          fix: `See their errors: txbox audit --from STORE --consumer ${shellWord(consumer)}, where STORE is the database of the sender. Mend the cause`,
        })),
    },
  ];
}

/**
 * How many wait is known of all processes together, and each has a limit of its own. Keys fall on lanes at random: one
 * process may hold nearly all of what waits. That one is full is sure only when so many do not fit below all limits.
 */
function nearlyFull({ name, parked, lanes }: RelayInfo): Symptom | undefined {
  const limits = new Map(
    lanes.flatMap(({ owner, leaseMs, maxParked = Number.POSITIVE_INFINITY }) =>
      owner !== null && leaseMs > 0 ? [[owner, maxParked] as const] : [],
    ),
  );
  const limit = Math.min(...limits.values());
  if (parked < NEARLY_FULL * limit) return undefined;
  const fitting = [...limits.values()].reduce((sum, most) => sum + most - 1, 0);
  const which =
    limits.size === 1
      ? `\`maxParked\` is ${limit}`
      : `its ${limits.size} processes together; \`maxParked\` of one is ${limit}`;
  return {
    severity: parked > fitting ? "error" : "warning",
    finding: `Relay "${name}" has ${plural(parked, "message")} behind failed ones${limits.size === 1 ? ";" : ","} ${which}`,
    consequence: "A process that holds so many takes no new messages, of any key, until enough have gone",
    fix: "See what fails: txbox blocked; txbox status. Mend the handler or the target, and they leave by themselves",
  };
}

function waiting(pending: number, oldestMs: number | null): string {
  if (pending === 0) return "";
  return `, and ${pending} messages wait${oldestMs === null ? "" : `, the first of them for ${formatMs(oldestMs)}`}`;
}
