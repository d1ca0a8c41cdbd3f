import { readFileSync } from "node:fs";
import { withClient } from "./with-client.ts";

/** CPU time (ms) that the server's processes for this database have used so far; undefined where /proc is not there. */
export async function backendCpuMs(serverUrl: string, databaseUrl: string): Promise<number | undefined> {
  const database = decodeURIComponent(new URL(databaseUrl).pathname.slice(1));
  const pids = await withClient(serverUrl, async (client) => {
    const { rows } = await client.query<{ pid: number }>("select pid from pg_stat_activity where datname = $1", [
      database,
    ]);
    return rows.map(({ pid }) => pid);
  });
  try {
    return pids.map(processCpuMs).reduce((sum, ms) => sum + ms, 0);
  } catch {
    return undefined;
  }
}

function processCpuMs(pid: number): number {
  const [nanoseconds] = readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ");
  return Number(nanoseconds) / 1e6;
}
