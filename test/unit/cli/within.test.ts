import { expect, it } from "vitest";
import { LATE, unlessStuck } from "../../../src/cli/within.ts";

it("waits for what was told to stop, but not for ever", async () => {
  const stop = new AbortController();
  const never = new Promise<string>(() => undefined);
  const soon = new Promise<string>((resolve) => setTimeout(resolve, 30, "done"));
  const [stuck, ended] = [unlessStuck(stop.signal, never, 20), unlessStuck(stop.signal, soon, 5000)];
  expect(await Promise.race([stuck, new Promise((resolve) => setTimeout(resolve, 60, "waits"))])).toBe("waits");
  stop.abort();
  expect(await stuck).toBe(LATE);
  expect(await ended).toBe("done");
  expect(await unlessStuck(stop.signal, never, 0)).toBe(LATE);
});
