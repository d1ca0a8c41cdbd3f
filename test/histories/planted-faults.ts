import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** A fault in the engine that histories must find: in a copy of the file, one text is replaced by another. */
export interface PlantedFault {
  readonly name: string;
  readonly file: string;
  readonly text: string;
  readonly fault: string;
}

export const PLANTED_FAULTS: readonly PlantedFault[] = [
  {
    name: "what comes behind a failed message is let out",
    file: "lane-session.ts",
    text: "return claim.messages.map((message) => !this.#keys.has(message));",
    fault: 'return "all";',
  },
  {
    name: "a lost answer counts as a written settlement",
    file: "settler.ts",
    text: "if (!port.isPassing(error) || clock.monotonic() > validUntil()) throw error;",
    fault: "written = true; break;",
  },
  {
    name: "the key of an attempt that goes on is free when its batch is settled",
    file: "settlement-draft.ts",
    text: "if (goingOn.has(key)) continue;",
    fault: "",
  },
  {
    name: "a key is forgotten after a read that reached its limit",
    file: "lane-session.ts",
    text: "if (!page.complete || found",
    fault: "if (found",
  },
  {
    name: "a key whose messages are in hand is handed out again",
    file: "waiting-keys.ts",
    text: "!key.held && !key.draining &&",
    fault: "!key.held &&",
  },
  {
    name: "an empty page behind an incomplete claim is settled",
    file: "lane-session.ts",
    text: "if (!this.#ending) for (const empty",
    fault: "for (const empty",
  },
];

/** Which of the faults histories of so many steps find. */
export async function findFaults(steps: number): Promise<{ name: string; failed: number[] }[]> {
  const root = new URL("../../", import.meta.url);
  return Promise.all(
    PLANTED_FAULTS.map(async ({ name, file, text, fault }) => {
      const copy = await mkdtemp(join(tmpdir(), "txbox-fault-"));
      try {
        for (const folder of ["src/core", "src/lanes", "test/histories"])
          await cp(new URL(folder, root), join(copy, folder), { recursive: true });
        await writeFile(join(copy, "package.json"), '{ "type": "module" }');
        const path = join(copy, "src/lanes", file);
        const source = await readFile(path, "utf8");
        if (!source.includes(text)) throw new Error(`${file} has no "${text}" any more: plant "${name}" elsewhere`);
        await writeFile(path, source.replace(text, fault));
        const run = promisify(execFile)(
          process.execPath,
          [join(copy, "test/histories/main.ts"), "--steps", String(steps), "--json"],
          { maxBuffer: 1e9 },
        );
        // It ends with 1 when a history has failed, as it should.
        const { stdout } = await run.catch((error: { stdout: string }) => error);
        return { name, failed: (JSON.parse(stdout) as { failed: number[] }).failed };
      } finally {
        await rm(copy, { recursive: true, force: true });
      }
    }),
  );
}
