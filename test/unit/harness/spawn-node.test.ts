import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { spawnNode, until } from "../../harness/index.ts";
import { isAlive } from "../../harness/processes.ts";

const echo = fileURLToPath(new URL("children/echo.ts", import.meta.url));
const owner = fileURLToPath(new URL("children/owner.ts", import.meta.url));

describe("spawnNode", () => {
  test("runs a TypeScript file and captures its output line by line", async () => {
    const child = spawnNode(echo, ["arg"], { env: { ECHO_WORD: "word" } });
    expect(await child.waitForLine("started")).toBe("started arg word");
    child.send("one");
    expect(await child.waitForLine(/^echo (\w+)/)).toBe("echo one");
    child.send("end");
    expect(await child.waitForExit()).toEqual({ code: 3, signal: null });
    expect(child.stderr).toEqual(["bye"]);
    expect(child.running).toBe(false);
  });

  test("a wait ends at its deadline, and when the child ends first", async () => {
    await using child = spawnNode(echo);
    await expect(child.waitForLine("never", { timeoutMs: 50 })).rejects.toThrow(/not within 50 ms/);
    const waiting = child.waitForLine("never");
    child.send("end");
    await expect(waiting).rejects.toThrow(/ended \(3\) without printing never/);
  });

  test("pauses, resumes and kills", async () => {
    const child = spawnNode(echo);
    await child.waitForLine("started");
    child.pause();
    child.send("late");
    await expect(child.waitForLine("echo late", { timeoutMs: 200 })).rejects.toThrow(/not within/);
    child.resume();
    await child.waitForLine("echo late");
    expect(await child.kill()).toEqual({ code: null, signal: "SIGKILL" });
  });

  test.each(["SIGKILL", "SIGINT"] as const)("servers of a process that gets %s end with it", async (signal) => {
    const child = spawnNode(owner);
    const [, pid] = (await child.waitForLine("ready")).split(" ");
    expect(isAlive(Number(pid))).toBe(true);
    await child.kill(signal);
    await until(() => !isAlive(Number(pid)), { what: "end of the orphaned server" });
  });
});
