import * as client from "prom-client";
import { describe, expect, it, vi } from "vitest";
import { collectDiagnosis } from "../../../src/observability/prometheus/index.ts";

function collecting(diagnose: () => Promise<{ check: string; severity: string }[]>, everyMs = 0) {
  const registry = new client.Registry();
  const errors: unknown[] = [];
  collectDiagnosis({ client, registry, diagnose, everyMs, onError: (error) => errors.push(error) });
  const scrape = async () => (await registry.metrics()).split("\n").filter((line) => line.startsWith("txbox_doctor"));
  return { scrape, errors };
}

describe("collectDiagnosis", () => {
  it("shows what the doctor has found, and forgets what was mended", async () => {
    const stuck = { check: "stuck_keys", severity: "warning" };
    let found = [stuck, stuck, { check: "schema", severity: "error" }];
    const looked = Promise.withResolvers<void>();
    const { scrape } = collecting(() => looked.promise.then(() => found));
    expect(await scrape(), "it has not looked yet").toEqual([]);
    looked.resolve();
    await scrape();
    expect(await scrape()).toEqual(
      expect.arrayContaining([
        'txbox_doctor_findings{check="stuck_keys",severity="warning"} 2',
        'txbox_doctor_findings{check="schema",severity="error"} 1',
        expect.stringMatching(/^txbox_doctor_age_seconds 0/),
      ]),
    );
    found = [];
    await scrape();
    expect((await scrape()).filter((line) => line.includes("findings"))).toEqual([]);
  });

  it("waits for no look, begins one at a time, and not too often", async () => {
    const { promise, resolve } = Promise.withResolvers<[]>();
    const looks = vi.fn<() => Promise<[]>>(() => promise);
    const { scrape } = collecting(looks);
    for (let i = 0; i < 3; i++) await scrape();
    expect(looks).toHaveBeenCalledOnce();
    resolve([]);
    const rarely = vi.fn<() => Promise<[]>>(() => Promise.resolve([]));
    const { scrape: again } = collecting(rarely, 60_000);
    for (let i = 0; i < 3; i++) await again();
    expect(rarely).toHaveBeenCalledOnce();
  });

  it("tells of a doctor that fails, and goes on", async () => {
    const { scrape, errors } = collecting(() => Promise.reject(new Error("no")));
    await scrape();
    await scrape();
    expect(errors).toEqual([new Error("no"), new Error("no")]);
    expect(await scrape()).toEqual([]);
  });
});
