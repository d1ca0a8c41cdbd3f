import { afterEach, describe, expect, test, vi } from "vitest";
import { serverOrSkip, ServerUnavailableError } from "../../harness/index.ts";

const unavailable = (): Promise<never> => Promise.reject(new ServerUnavailableError("Install it: apt-get install x"));

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

describe("serverOrSkip", () => {
  test("skips loudly on a laptop", async () => {
    vi.stubEnv("CI", "");
    const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    const slot = await serverOrSkip("X", unavailable);
    expect(slot.skipped).toBe(true);
    expect(() => slot.server).toThrow("apt-get install x");
    expect(String(write.mock.calls[0]?.[0])).toContain("SKIPPED: no X. Install it: apt-get install x");
  });

  test("fails in CI", async () => {
    vi.stubEnv("CI", "true");
    await expect(serverOrSkip("X", unavailable)).rejects.toThrow("apt-get install x");
  });

  test("never hides any other failure", async () => {
    vi.stubEnv("CI", "");
    await expect(serverOrSkip("X", () => Promise.reject(new Error("broken")))).rejects.toThrow("broken");
  });
});
