import { existsSync, mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { requireCommand } from "./require-command.ts";
import { runCommand } from "./run-command.ts";
import { ServerUnavailableError } from "./server-unavailable-error.ts";

/** What Maven calls an artifact: `group:name:version`. */
export type Artifact = `${string}:${string}:${string}`;

/** The folder with these artifacts and all they need: fetched by Maven once, then kept for later runs under this name. */
export async function mavenJars(name: string, artifacts: readonly Artifact[]): Promise<string> {
  const home = cacheFolder();
  const folder = join(home, name);
  if (existsSync(folder)) return folder;
  const maven = await requireCommand("mvn", { apt: "maven" });
  const work = mkdtempSync(join(home, "fetching-"));
  try {
    writeFileSync(join(work, "pom.xml"), pom(artifacts));
    const args = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"];
    const { code, stdout, stderr } = await runCommand(maven, args, { cwd: work, timeoutMs: 180_000 });
    if (code !== 0) throw new ServerUnavailableError(`Maven could not fetch ${name}\n${stdout}${stderr}`);
    rename(join(work, "jars"), folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return folder;
}

function pom(artifacts: readonly Artifact[]): string {
  const dependencies = artifacts.map((artifact) => {
    const [group, name, version] = artifact.split(":");
    return `<dependency><groupId>${group}</groupId><artifactId>${name}</artifactId><version>${version}</version></dependency>`;
  });
  return `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>txbox</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>${dependencies.join("\n")}</dependencies>
</project>
`;
}

/** Beside the packages, where a later run finds it; else where the system keeps what may vanish. */
function cacheFolder(): string {
  const packages = fileURLToPath(new URL("../../node_modules", import.meta.url));
  const candidates = existsSync(packages) ? [join(realpathSync(packages), ".cache", "txbox")] : [];
  for (const folder of [...candidates, join(tmpdir(), "txbox-cache")]) {
    try {
      mkdirSync(folder, { recursive: true });
      return folder;
    } catch {
      // Read-only: the next one.
    }
  }
  throw new Error("there is no folder to keep jars in");
}

function rename(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    // Another test process was faster.
    if (!existsSync(to)) throw error;
  }
}
