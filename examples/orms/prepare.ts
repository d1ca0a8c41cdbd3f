import { spawnSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Installs what the lock file says, generates code, and compiles all of it. */
export async function prepare(folder: string): Promise<void> {
  const run = (command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): void => {
    const { status } = spawnSync(command, args, { cwd: folder, stdio: "inherit", env: { ...process.env, ...env } });
    if (status !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${status}`);
  };
  if (packages(folder, "package-lock.json").some((one) => !packages(folder, INSTALLED).includes(one))) {
    console.log("installing the ORMs (once) …");
    run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
  }
  if (globSync("prisma/schema.prisma", { cwd: folder }).length > 0) {
    // Generating needs no engine of Prisma's, but it would fetch one.
    run(join(folder, "node_modules/.bin/prisma"), ["generate", "--schema", "prisma/schema.prisma"], {
      PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true",
      PRISMA_HIDE_UPDATE_MESSAGE: "1",
    });
  }
  run(process.execPath, [join(folder, "../../node_modules/typescript/bin/tsc"), "-p", folder]);
}

const INSTALLED = "node_modules/.package-lock.json";

function packages(folder: string, file: string): string[] {
  try {
    const { packages: all } = JSON.parse(readFileSync(join(folder, file), "utf8")) as {
      packages: Record<string, { version?: string; optional?: boolean }>;
    };
    return Object.entries(all).flatMap(([name, { version, optional }]) =>
      name === "" || optional === true ? [] : [`${name}@${version}`],
    );
  } catch {
    return [];
  }
}
