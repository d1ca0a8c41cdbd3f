import { readFileSync } from "node:fs";
import { findCommand } from "./require-command.ts";
import { runCommand } from "./run-command.ts";

/** Who runs a server: empty when we are not root. Servers such as PostgreSQL refuse to run as root. */
export interface ServerUser {
  readonly uid?: number;
  readonly gid?: number;
}

export async function serverUser(): Promise<ServerUser> {
  if (process.getuid?.() !== 0) return {};
  const existing = findUser("postgres");
  if (existing !== undefined) return existing;
  // Another test process may create it at the same time: what counts is whether it is there afterwards.
  const useradd = findCommand("useradd") ?? "useradd";
  await runCommand(useradd, ["--system", "--user-group", "--no-create-home", "postgres"]).catch(() => undefined);
  const user = findUser("postgres") ?? findUser("nobody");
  if (user === undefined) throw new Error("running as root, and there is no user to run servers as; create `postgres`");
  return user;
}

function findUser(name: string): { uid: number; gid: number } | undefined {
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith(`${name}:`));
  const [, , uid, gid] = line?.split(":") ?? [];
  return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) };
}
