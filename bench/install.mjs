// Installs the peers of the benchmark when they are missing or differ from the lock file. Plain JavaScript, so that
// an old Node gets a clear word instead of a syntax error.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 18)) {
  console.error(`bench needs Node 22.18 or later, this is ${process.version}: run "npm ci" in the project first`);
  process.exit(1);
}

const here = fileURLToPath(new URL(".", import.meta.url));

function packages(file) {
  try {
    const { "": _root, ...rest } = JSON.parse(readFileSync(`${here}${file}`, "utf8")).packages;
    return Object.entries(rest).map(([name, { version }]) => `${name}@${version}`);
  } catch {
    return [];
  }
}

const wanted = packages("package-lock.json");
const present = new Set(packages("node_modules/.package-lock.json"));
if (wanted.some((name) => !present.has(name))) {
  console.log("installing the peers (once) …");
  const npm = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: here,
    stdio: "inherit",
    shell: process.platform === "win32",
  });
  if (npm.status !== 0) process.exit(npm.status ?? 1);
}
