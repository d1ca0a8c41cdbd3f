import { readFileSync } from "node:fs";
import { join } from "node:path";
import { format } from "oxfmt";
import { describe, expect, test } from "vitest";
import { captureCli } from "../support/captured-cli.ts";
import { argsOf, field, manifestFiles, manifests } from "../support/docs/manifests.ts";
import { root } from "../support/docs/markdown.ts";
import { projectFolder } from "../support/run-cli.ts";

const all = manifests();
const containers = all.filter(({ text }) => /^ *containers:$/m.test(text));

describe("manifests for Kubernetes", () => {
  test.each(manifestFiles)("%s is YAML", async (file) => {
    const { errors } = await format(file, readFileSync(join(root, file), "utf8"));
    expect(errors).toEqual([]);
  });

  test("a file that is no YAML would be noticed", async () => {
    expect((await format("wrong.yaml", "spec:\n  a: 1\n   b: 2\n")).errors).not.toEqual([]);
  });

  test("each document says what it is", () => {
    expect(all.map((one) => field(one, "kind") ?? "").toSorted()).toEqual([
      "CronJob",
      "CronJob",
      "CronJob",
      "Deployment",
      "Deployment",
      "Job",
      "Kustomization",
      "PodDisruptionBudget",
      "PodMonitor",
    ]);
    const nameless = all.filter((one) => {
      if (field(one, "apiVersion") === undefined) return true;
      return field(one, "kind") !== "Kustomization" && field(one, "(?:name|generateName)") === undefined;
    });
    expect(nameless.map(({ where }) => where)).toEqual([]);
  });

  test("the list of kustomize names files that are there", () => {
    const kustomization = all.find((one) => field(one, "kind") === "Kustomization")!;
    const named = Array.from(kustomization.text.matchAll(/^ {2}- (\S+\.yaml)$/gm), (match) => match[1] ?? "");
    expect(named.length).toBeGreaterThan(2);
    expect(named.filter((name) => !manifestFiles.includes(`examples/kubernetes/${name}`))).toEqual([]);
  });

  test.each(containers.map((one) => [one.where, one] as const))("%s: a container that may do little", (_, one) => {
    for (const line of [
      "runAsNonRoot: true",
      "allowPrivilegeEscalation: false",
      "readOnlyRootFilesystem: true",
      "capabilities: { drop: [ALL] }",
      "automountServiceAccountToken: false",
      'command: ["node", "node_modules/.bin/txbox"]',
    ])
      expect(one.text).toContain(line);
    expect(one.text).toMatch(/requests: \{ cpu: \d+m, memory: \d+Mi \}/);
    expect(one.text).toMatch(/limits: \{ memory: \d+Mi \}/);
    expect(one.text).toMatch(/name: DATABASE_URL\n +valueFrom: \{ secretKeyRef:/);
    expect(argsOf(one)).toHaveLength(1);
  });

  test("the relay has time for a clean stop before it is killed", () => {
    const relay = all.find((one) => argsOf(one)[0]?.[0] === "relay")!;
    const [args = []] = argsOf(relay);
    const deadlineMs = Number(args[args.indexOf("--stop-deadline-ms") + 1]);
    expect(Number(field(relay, "terminationGracePeriodSeconds"))).toBeGreaterThanOrEqual(deadlineMs / 1000 + 10);
    for (const path of ["/healthz", "/readyz"])
      expect(relay.text).toContain(`httpGet: { path: ${path}, port: metrics }`);
    expect(relay.text).toContain(`containerPort: ${args[args.indexOf("--metrics") + 1]?.split(":")[1]}`);
  });

  const lines = containers.flatMap((one) => argsOf(one).map((args) => [args.join(" "), args] as const));
  test.for(lines)("txbox %s is accepted, up to the look at the database", async ([, args]) => {
    using project = projectFolder({ "txbox.config.mjs": config() });
    const env = { DATABASE_URL: AWAY, PAYMENTS_DATABASE_URL: AWAY };
    const { code, stderr } = await captureCli(args, { cwd: project.path, env });
    // 4 is "the database cannot be reached"; the doctor tells that as its finding.
    expect({ code, stderr }).toMatchObject({ code: 4 });
  });
});

/** A port on which nothing listens. */
const AWAY = "postgres://relay:secret@127.0.0.1:1/orders";

function config(): string {
  const stores = `stores: { payments: { url: process.env.PAYMENTS_DATABASE_URL ?? "${AWAY}" } },`;
  return `export default { ${stores} relays: { "to-rabbit": { publisher: { keepsKeyOrder: true, publish: async () => [] } } } };`;
}
