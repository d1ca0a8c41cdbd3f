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
    // The server reads its log with the publication of that moment, whatever it is made later.
    await scene.query("alter publication txbox set table txbox.message where (position / (position - position) > 0)");
    await scene.enqueue(store, series("k", 5, 6));
    await scene.query("alter publication txbox set table txbox.message");
    await until(() => publisher.sent.length === 10, { what: "what cannot be streamed", timeoutMs: 20_000 });
    // A look at the publication may come first.
    const reason = /division by zero|was changed|does not bring every insert/;
    await until(() => reason.test(streaming.lost() ?? ""), { what: "the reason", timeoutMs: 20_000 });
    await streaming.streams();
    await scene.enqueue(store, series("k", 5, 11));
    await until(() => publisher.sent.length === 15, { what: "the stream" });
    await until(async () => (await store.admin.relays())[0]?.pending === 0, { what: "the anchors" });
    expect(streaming.events.at(-1)).toMatchObject({ type: "stream_started", from: "scan" });
    expect(verdict(publisher, new Map([["k", 15]]))).toEqual({ lost: 0, doubled: 0, reordered: 0 });
  }, 60_000);
});
