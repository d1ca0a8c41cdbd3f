import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { writePageModule } from "./build-page.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");

rmSync(dist, { recursive: true, force: true });

const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
const tsc = spawnSync(process.execPath, [compiler, "-p", "tsconfig.build.json"], { cwd: root, stdio: "inherit" });
if (tsc.status !== 0) process.exit(tsc.status ?? 1);

await writePageModule(join(dist, "admin", "page-bundle.js"));
rmSync(join(dist, "admin", "page-bundle.js.map"), { force: true });
