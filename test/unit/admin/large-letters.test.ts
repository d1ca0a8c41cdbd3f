import { expect, test } from "vitest";
import { createAdmin, redrive } from "../../../src/admin/index.ts";
import type { Admin, DeadLetter, DeadQuery, Store } from "../../../src/core/contracts.ts";
import { ask } from "../../support/admin-scene.ts";

const LETTERS = 1200;

const letter = (position: number): DeadLetter =>
  ({
    position: BigInt(position),
    relay: "r",
    stream: "s",
    id: `m-${position}`,
    type: "t",
    key: `k-${position % 300}`,
    headers: {},
    body: "",
    state: "dead",
    command: null,
    attempts: 1,
    lastError: "broken",
    errors: [],
    diedAt: new Date(0),
    createdAt: new Date(0),
    group: "0f3a9c41d2e7",
    edited: false,
  }) as unknown as DeadLetter;

/** A store whose letters are large: who asks for many of them must not ask for their contents. */
function storeOfLargeLetters(): { store: Store; requeued: number[] } {
  const requeued: number[] = [];
  const admin = {
    by: () => admin,
    figures: async () => undefined,
    relays: async () => [{ name: "r", paused: false, lanes: [{ owner: "p", lanes: 64, leaseMs: 5000 }] }],
    samples: async () => [],
    async dead({ after, limit = 100, contents }: DeadQuery) {
      if (contents !== false) throw new Error("bodies of many letters were asked for");
      const from = Number(after?.position ?? 0) + 1;
      return Array.from({ length: Math.min(limit, LETTERS - from + 1) }, (_, n) => letter(from + n));
    },
    async requeue({ letters = [] }: { letters?: unknown[] }) {
      requeued.push(letters.length);
      return letters.length;
    },
  } as unknown as Admin;
  return { store: { admin } as Store, requeued };
}

test("letters are counted, listed and requeued at a rate without their bodies", async () => {
  const { store, requeued } = storeOfLargeLetters();
  const admin = createAdmin({ stores: { shop: store } });
  const body = { action: "requeue", store: "shop", choice: { relay: "r", all: true } };
  const preview = await ask(admin, "/api/preview", { body });
  expect(preview.json).toMatchObject({
    question: "Requeue 1,200 dead letters?",
    count: LETTERS,
    notes: [expect.stringContaining("300 keys")],
  });
  expect((await ask(admin, "/api/letters?store=shop")).status).toBe(200);
  await redrive(store, { all: true, perSecond: 10_000 });
  expect(requeued.reduce((sum, count) => sum + count, 0)).toBe(LETTERS);
  await admin.close();
});
