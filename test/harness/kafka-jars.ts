import { existsSync, mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { requireCommand } from "./require-command.ts";
import { runCommand } from "./run-command.ts";
import { ServerUnavailableError } from "./server-unavailable-error.ts";

const VERSION = "4.1.0";

const POM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>txbox</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${VERSION}</version></dependency>
  </dependencies>
</project>
`;

/** The folder with Kafka and all it needs: fetched by Maven once (43 MB), then kept for later runs. */
export async function kafkaJars(): Promise<string> {
  const home = cacheFolder();
  const folder = join(home, `kafka-${VERSION}`);
  if (existsSync(folder)) return folder;
  const maven = await requireCommand("mvn", { apt: "maven" });
  const work = mkdtempSync(join(home, "fetching-"));
  try {
    writeFileSync(join(work, "pom.xml"), POM);
    const args = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"];
    const { code, stdout, stderr } = await runCommand(maven, args, { cwd: work, timeoutMs: 180_000 });
    if (code !== 0) throw new ServerUnavailableError(`Maven could not fetch Kafka ${VERSION}\n${stdout}${stderr}`);
    rename(join(work, "jars"), folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return folder;
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
  throw new Error("there is no folder to keep Kafka in");
}

function rename(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    // Another test process was faster.
    if (!existsSync(to)) throw error;
  }
}
