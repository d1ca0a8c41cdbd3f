import { describe, expect, it } from "vitest";
import type { WalStatus } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { runCli } from "../../support/run-cli.ts";
import { series } from "../support/outbox-database.ts";
import { verdict, walScene } from "../support/wal-scene.ts";

describe.skipIf(!hasPostgres())("txbox wal, and what txbox status says of a stream", () => {
  const scene = walScene();
  const txbox = (...args: string[]) => runCli(args, { env: { DATABASE_URL: scene.url } });
  const says = (pattern: RegExp, ...args: string[]) =>
    until(async () => pattern.test((await txbox(...args)).stdout), { what: String(pattern), timeoutMs: 60_000 });

  it("is missing, enabled, in use and disabled, while messages go on", async () => {
    const store = await scene.open({ enabled: false });
    const streaming = await scene.start(store);
    const { publisher } = streaming;
    const before = await txbox("wal", "status");
    expect([before.code, before.stdout]).toEqual([1, expect.stringMatching(/txbox wal enable/)]);
    await says(/polling: .*txbox wal enable/, "status");

    const enabled = await txbox("wal", "enable");
    expect([enabled.code, enabled.stderr]).toEqual([0, ""]);
    await streaming.streams();
    await scene.enqueue(store, series("k", 10));
    await until(() => publisher.sent.length === 10, { what: "the stream" });
    await says(/\bstream\b/, "status");
    const during = await txbox("wal", "status", "--json");
    const status = during.json as WalStatus;
    expect([during.code, status.ready, status.missing]).toEqual([0, true, []]);
    expect(status.relays).toMatchObject([
      { relay: "r", processes: [{ source: "stream" }], slot: { active: true, lost: false } },
    ]);

    // It asks first, and there is no terminal to answer at.
    const asked = await txbox("wal", "disable");
    expect(asked.code).not.toBe(0);
    expect((await scene.slots()).length).toBe(1);
    expect((await txbox("wal", "disable", "--yes")).code).toBe(0);
    await until(async () => (await scene.slots()).length === 0, { what: "no slot", timeoutMs: 20_000 });
    await scene.enqueue(store, series("k", 10, 11));
    await until(() => publisher.sent.length === 20, { what: "polling" });
    await says(/polling: .*txbox wal enable/, "status");
    expect(verdict(publisher, new Map([["k", 20]]))).toEqual({ lost: 0, doubled: 0, reordered: 0 });
  }, 240_000);
});
