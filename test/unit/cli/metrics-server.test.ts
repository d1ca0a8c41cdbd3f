import { describe, expect, it, onTestFinished } from "vitest";
import { listenAddress } from "../../../src/cli/listen-address.ts";
import { MetricsServer } from "../../../src/cli/metrics-server.ts";
import { Output } from "../../../src/cli/output.ts";
import type { Health } from "../../../src/observability/health.ts";

const HEALTHY: Health = {
  live: () => ({ ok: true, reasons: [] }),
  ready: () => Promise.resolve({ ok: true, reasons: [], relays: [] }),
};

/** A server on a free port; what it answers. */
async function serving(metrics: () => Promise<string>, health = HEALTHY) {
  let told = "";
  const stream = { writable: true, write: (text: string) => ((told += text), true) };
  const output = new Output({ json: false, verbose: false, stdout: stream, stderr: stream });
  output.secrets.add("S3cr3t");
  const registry = {
    contentType: "text/plain",
    metrics,
    getSingleMetric: () => undefined,
    removeSingleMetric: () => undefined,
  };
  const address = { host: "127.0.0.1", port: 0 };
  const server = new MetricsServer({ address, registry, health, output, answerMs: 50 });
  onTestFinished(() => server[Symbol.dispose]());
  await server.listen();
  const port = /127\.0\.0\.1:(\d+)/.exec(told)?.[1];
  return async (path: string) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { signal: AbortSignal.timeout(5000) });
    return [response.status, await response.text()] as const;
  };
}

describe("the server of metrics", () => {
  it("answers a scrape though a metric hangs", async () => {
    const get = await serving(() => new Promise(() => undefined));
    expect(await get("/metrics")).toEqual([503, "The metrics were not ready within 50 ms\n"]);
    expect(await get("/healthz")).toEqual([200, '{"status":"ok","reasons":[]}\n']);
  });

  it("answers a scrape though a metric throws, and hides what is secret", async () => {
    const get = await serving(() => Promise.reject(new Error("no login with S3cr3t")));
    const [status, body] = await get("/metrics");
    expect([status, body.includes("S3cr3t"), body.includes("no login with")]).toEqual([500, false, true]);
    const unwell = { ...HEALTHY, ready: () => Promise.resolve({ ok: false, reasons: ["S3cr3t"], relays: [] }) };
    const other = await serving(() => Promise.resolve(""), unwell);
    const [code, text] = await other("/readyz");
    expect([code, text.includes("S3cr3t")]).toEqual([503, false]);
  });
});

describe("an address to listen at", () => {
  it.each([
    ["127.0.0.1:9464", "127.0.0.1", 9464],
    ["9464", "127.0.0.1", 9464],
    ["0.0.0.0:0", "0.0.0.0", 0],
    ["[::1]:9464", "::1", 9464],
    ["metrics.local:65535", "metrics.local", 65_535],
  ])("%s", (text, host, port) => {
    expect(listenAddress("--metrics", text, "relay")).toEqual({ host, port });
  });

  it.each(["", ":9464", "localhost", "localhost:", "localhost:-1", "localhost:65536", "a b:1", "http://x:1"])(
    "%j is refused",
    (text) => {
      expect(() => listenAddress("--metrics", text, "relay")).toThrow(
        /^--metrics needs a (port|host).*Write 127\.0\.0\.1/,
      );
    },
  );
});
