import { readFileSync } from "node:fs";
import { withClient } from "./with-client.ts";

export interface CpuMeter {
  /** CPU time (ms) since the start; undefined where /proc is not there. */
  stop(): Promise<number | undefined>;
}

/** Measures what the server's processes for a database use, or those of one application. Looks now and then, because connections come and go. */
export async function meterBackends(serverUrl: string, databaseUrl: string, application?: string): Promise<CpuMeter> {
  const database = decodeURIComponent(new URL(databaseUrl).pathname.slice(1));
  const first = new Map<number, number>();
  const last = new Map<number, number>();
  const look = async (isStart: boolean): Promise<void> => {
    for (const pid of await backends(serverUrl, database, application)) {
      const ms = processCpuMs(pid);
      if (ms === undefined) continue;
      // Whoever comes later began with nothing.
      if (!first.has(pid)) first.set(pid, isStart ? ms : 0);
      last.set(pid, ms);
    }
  };
  await look(true);
  const timer = setInterval(() => void look(false).catch(() => undefined), 500);
  return {
    async stop() {
      clearInterval(timer);
      await look(false);
      if (last.size === 0) return undefined;
      return Array.from(last, ([pid, ms]) => ms - (first.get(pid) ?? 0)).reduce((sum, ms) => sum + ms, 0);
    },
  };
}

async function backends(serverUrl: string, database: string, application?: string): Promise<number[]> {
  return withClient(serverUrl, async (client) => {
    const { rows } = await client.query<{ pid: number }>(
      "select pid from pg_stat_activity where datname = $1 and ($2::text is null or application_name = $2)",
      [database, application ?? null],
    );
    return rows.map(({ pid }) => pid);
  });
}

export function processCpuMs(pid: number): number | undefined {
  try {
    const [nanoseconds] = readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ");
    return Number(nanoseconds) / 1e6;
  } catch {
    return undefined;
  }
}
