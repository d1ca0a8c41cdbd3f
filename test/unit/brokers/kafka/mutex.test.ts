import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { ABORTED, LATE } from "../../../../src/adapter/index.ts";
import { Mutex, type Turn } from "../../../../src/brokers/kafka/mutex.ts";

async function taken(mutex: Mutex, ms = 1000): Promise<Turn> {
  const turn = await mutex.take(ms);
  if (typeof turn === "symbol") throw new Error(String(turn));
  return turn;
}

test("turns come in the order they were asked for", async () => {
  const mutex = new Mutex();
  const order: number[] = [];
  const first = await taken(mutex);
  const others = [2, 3].map(async (n) => {
    const turn = await taken(mutex);
    order.push(n);
    turn.end();
  });
  await sleep(10);
  order.push(1);
  first.end();
  await Promise.all(others);
  expect(order).toEqual([1, 2, 3]);
});

test("a turn that shows signs of life is waited for, however long it takes", async () => {
  const mutex = new Mutex();
  const first = await taken(mutex);
  const second = mutex.take(60);
  for (let n = 0; n < 10; n++) {
    await sleep(20);
    first.alive();
  }
  first.end();
  expect(await second).not.toBe(LATE);
});

test("one that shows none is not waited for, and the next still comes after it", async () => {
  const mutex = new Mutex();
  const first = await taken(mutex);
  const aborted = new AbortController();
  const third = mutex.take(10_000, aborted.signal);
  expect(await mutex.take(30)).toBe(LATE);
  aborted.abort();
  expect(await third).toBe(ABORTED);
  const last = taken(mutex);
  first.end();
  (await last).end();
});
