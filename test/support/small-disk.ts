import { mkdtempSync, rmdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runCommand } from "../harness/run-command.ts";
import { inCi } from "../harness/server-or-skip.ts";
import { type PostgresOptions, type PostgresServer, startPostgres } from "../harness/start-postgres.ts";

const SIZE_MB = 200;

export interface SmallDisk {
  /** A server with its data there. */
  startPostgres(options?: PostgresOptions): Promise<PostgresServer>;
  /** Leaves nothing free. */
  fill(): void;
  free(): void;
  unmount(): Promise<void>;
}

/** A small file system of our own; undefined where we may not mount one, which is said under the name of the suite; in CI an error. */
export async function smallDisk(suite: string): Promise<SmallDisk | undefined> {
  if (process.platform !== "linux") return undefined;
  const folder = mkdtempSync(join(tmpdir(), "txbox-disk-"));
  const filler = join(folder, "filler");
  const mounted = await runCommand("mount", ["-t", "tmpfs", "-o", `size=${SIZE_MB}m,mode=0755`, "tmpfs", folder]).catch(
    () => undefined,
  );
  if (mounted?.code !== 0) {
    rmdirSync(folder);
    const reason = "Mounting a tmpfs needs root: run the tests as root, or in a container with SYS_ADMIN";
    if (inCi()) throw new Error(`${suite}: ${reason}`);
    process.stderr.write(`\n*** SKIPPED: ${suite}. ${reason}\n\n`);
    return undefined;
  }
  return {
    async startPostgres(options = {}) {
      const { TMPDIR } = process.env;
      process.env["TMPDIR"] = folder;
      try {
        const settings = { max_wal_size: "64MB", min_wal_size: "32MB", ...options.settings };
        return await startPostgres({ owned: true, fsync: true, ...options, settings });
      } finally {
        if (TMPDIR === undefined) delete process.env["TMPDIR"];
        else process.env["TMPDIR"] = TMPDIR;
      }
    },
    fill() {
      const { bavail, bsize } = statfsSync(folder);
      try {
        writeFileSync(filler, Buffer.alloc((bavail + 16) * bsize));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
      }
    },
    free: () => rmSync(filler, { force: true }),
    async unmount() {
      await runCommand("umount", ["-l", folder]);
      rmdirSync(folder);
    },
  };
}
