import { describe, expect, test } from "vitest";
import type { MessagePage } from "../../../src/core/contracts.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { adminScene } from "../../support/admin-scene.ts";

const MESSAGES = 60;
const BODY = "A".repeat(700_000);

describe.skipIf(!hasPostgres())("a search for large messages", () => {
  test("a page ends after some bytes, and no message is missed or shown twice", { timeout: 120_000 }, async () => {
    await using scene = await adminScene();
    for (let n = 0; n < MESSAGES; n++)
      await scene.enqueue({ stream: "s", type: "t", key: "k", payload: BODY, id: `m-${n}` });
    const { admin } = scene.store;
    const ids: string[] = [];
    let pages = 0;
    for (let after: string | null | undefined; after !== null; pages++) {
      const page: MessagePage = await admin.search({ key: "k", ...(after === undefined ? {} : { after }) });
      expect(page.messages.length).toBeLessThan(30);
      ids.push(...page.messages.map(({ id }) => id));
      after = page.next;
    }
    expect(ids).toEqual(Array.from({ length: MESSAGES }, (_, n) => `m-${MESSAGES - 1 - n}`));
    expect(pages).toBeGreaterThan(2);
    // A list of them is one page.
    const list = await admin.search({ key: "k", contents: false });
    expect([list.messages.length, list.next]).toEqual([MESSAGES, null]);
  });
});
