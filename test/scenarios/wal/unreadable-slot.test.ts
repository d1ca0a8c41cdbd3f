import { describe, expect, it } from "vitest";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { series } from "../support/outbox-database.ts";
import { verdict, walScene } from "../support/wal-scene.ts";

describe.skipIf(!hasPostgres())("a slot that the server cannot read from any more", () => {
  const scene = walScene();

  it("is made anew: the same error would come each time", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    const { publisher } = streaming;
    await streaming.streams();
    await scene.enqueue(store, series("k", 5));
    await until(() => publisher.sent.length === 5, { what: "the stream" });
    let n = 5;
    const fails = async (): Promise<boolean> => {
      await streaming.streams();
      const told = streaming.events.length;
      // The server reads its log with the publication of that moment, whatever it is made later.
      await scene.query("alter publication txbox set table txbox.message where (position / (position - position) > 0)");
      await scene.enqueue(store, series("k", 5, n + 1));
      await scene.query("alter publication txbox set table txbox.message");
      n += 5;
      await until(() => publisher.sent.length === n, { what: "what cannot be streamed", timeoutMs: 20_000 });
      await until(() => streaming.events.length > told, { what: "the reason", timeoutMs: 20_000 });
      return /division by zero/.test(streaming.lost() ?? "");
    };
    // A look at the publication may come just then and end the stream first.
    for (let tries = 1; !(await fails()); tries++) expect(tries).toBeLessThan(3);
    await streaming.streams();
    await scene.enqueue(store, series("k", 5, n + 1));
    await until(() => publisher.sent.length === n + 5, { what: "the stream" });
    await until(async () => (await store.admin.relays())[0]?.pending === 0, { what: "the anchors" });
    expect(streaming.events.at(-1)).toMatchObject({ type: "stream_started", from: "scan" });
    expect(verdict(publisher, new Map([["k", n + 5]]))).toEqual({ lost: 0, doubled: 0, reordered: 0 });
  }, 60_000);
});
