import { afterEach, expect, test, vi } from "vitest";
import { createAdmin } from "../../../src/admin/index.ts";

afterEach(() => {
  vi.useRealTimers();
});

test("a feed ends after some minutes, so that a right that was withdrawn ends it", async () => {
  vi.useFakeTimers();
  let isAllowed = true;
  const admin = createAdmin({
    authorize: () => (isAllowed ? { actor: "ada" } : null),
    stores: { shop: { admin: { figures: () => new Promise(() => undefined) } } as never },
  });
  const live = (): Promise<Response> => admin(new Request("http://127.0.0.1/api/live"));
  const text = (await live()).text();
  isAllowed = false;
  await vi.advanceTimersByTimeAsync(4 * 60_000);
  expect(await Promise.race([text, Promise.resolve("open")])).toBe("open");
  await vi.advanceTimersByTimeAsync(2 * 60_000);
  // The page asks anew at once, with what it may see by now.
  expect(await text).toMatch(/event: again\ndata: \n\n$/);
  expect((await live()).status).toBe(403);
  await admin.close();
});
