import type { Symptom } from "../../core/contracts.ts";

const WARN_MS = 1000;
const ERROR_MS = 60_000;

/** Compares the clock of this process with the server's, which is asked for the time in ms. */
export async function clockSkew(serverNow: () => Promise<number>): Promise<Symptom[]> {
  const before = Date.now();
  const server = await serverNow();
  const after = Date.now();
  // The server looked at its clock at some moment between the two.
  const skew = server < before ? before - server : Math.max(0, server - after);
  if (skew < WARN_MS) return [];
  const side = server < before ? "ahead of" : "behind";
  return [
    {
      severity: skew >= ERROR_MS ? "error" : "warning",
      finding: `The clock of this process is ${Math.round(skew / 100) / 10} s ${side} that of the database`,
      consequence:
        "Ids made here hold a wrong time: receipts are kept too long or too short, and far enough off they are refused with receipt_expired. Scheduled messages are early or late",
      fix: "Run NTP (chrony, systemd-timesyncd) on both machines and compare: chronyc tracking",
    },
  ];
}
