import { describe, expect, it } from "vitest";
import { oneLook } from "../../../src/core/one-look.ts";
import { fakeClock } from "../../../src/testing/fake-clock.ts";

describe("oneLook", () => {
  it("asks again only when the answer before has come, good or bad", async () => {
    const answers: PromiseWithResolvers<number>[] = [];
    const look = oneLook(() => {
      answers.push(Promise.withResolvers<number>());
      return answers.at(-1)!.promise;
    });
    const both = [look(), look()];
    expect(answers).toHaveLength(1);
    answers[0]!.resolve(1);
    expect(await Promise.all(both)).toEqual([1, 1]);
    const failed = look();
    expect(answers).toHaveLength(2);
    answers[1]!.reject(new Error("away"));
    await expect(failed).rejects.toThrow("away");
    void look();
    expect(answers).toHaveLength(3);
  });

  it("does not wait for ever for an answer that never comes", async () => {
    const clock = fakeClock();
    let asked = 0;
    const look = oneLook(() => {
      asked++;
      return new Promise(() => undefined);
    }, clock);
    void look();
    await clock.advance(59_000);
    void look();
    expect(asked).toBe(1);
    await clock.advance(1000);
    void look();
    expect(asked).toBe(2);
  });
});
