import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { describe, expect, test } from "vitest";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { hasPostgres, testDatabase } from "../harness/shared-postgres.ts";
import { anchors, blocks, links, page, pages, root } from "../support/docs/markdown.ts";
import { compile, programs } from "../support/docs/snippets.ts";
import { literalsOf, postgresTables, propertiesOf } from "../support/docs/source-facts.ts";

const all = pages();
/** Their snippets are not marked as complete or fragment. */
const UNMARKED: ReadonlySet<string> = new Set(["docs/writing-an-adapter.md", "docs/conformance.md"]);

describe("links", () => {
  test("lead to files that exist, and to headings in them", () => {
    const broken = all.flatMap(links).filter(({ page: from, file = from, anchor }) => {
      if (!existsSync(join(root, file))) return true;
      return anchor !== undefined && !anchors(page(file)).has(anchor);
    });
    expect(broken.map(({ page: from, target }) => `${from}: ${target}`)).toEqual([]);
  });

  test("lead from the index to every page of docs", () => {
    const linked = new Set(
      ["docs/index.md", "docs/decisions/index.md"].flatMap((path) => links(page(path)).map(({ file }) => file)),
    );
    const lost = all
      .map(({ path }) => path)
      .filter((path) => path.startsWith("docs/") && path !== "docs/index.md" && !linked.has(path));
    expect(lost).toEqual([]);
  });
});

test("the layout in CONTRIBUTING.md is that of the repository", () => {
  const layout = page("CONTRIBUTING.md").text.split("\n## Layout\n")[1]?.split("```")[1] ?? "";
  const named = Array.from(layout.matchAll(/^(\S+\/) /gm), (match) => match[1] ?? "");
  const kinds = Array.from(layout.matchAll(/ (\w+)\/(?= |$)/gm), (match) => `test/${match[1]}`);
  expect(named).toContain("src/cli/");
  expect(kinds).toContain("test/types");
  expect([...named, ...kinds].filter((folder) => !existsSync(join(root, folder)))).toEqual([]);
  const sources = readdirSync(join(root, "src"), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  expect(sources.map(({ name }) => `src/${name}/`).filter((folder) => !named.includes(folder))).toEqual([]);
});

test("every test with a longer form is listed in CONTRIBUTING.md", () => {
  const listed = new Set(links(page("CONTRIBUTING.md")).map(({ file }) => file));
  const tests = globSync("test/**/*.test.ts", { cwd: root }).filter((file) =>
    /\/(?:is-long|broker-outage)\.ts"/.test(readFileSync(join(root, file), "utf8")),
  );
  expect(tests.length).toBeGreaterThan(5);
  expect(tests.filter((file) => !listed.has(file))).toEqual([]);
});

describe("reference", () => {
  test.each([
    ["src/relay/relay-options.ts", "RelayOptions", "docs/relay.md"],
    ["src/relay/relay.ts", "DrainOptions", "docs/relay.md"],
    ["src/core/publish-each.ts", "PublishEachOptions", "docs/relay.md"],
    ["src/stores/postgres/postgres-store.ts", "PostgresStoreOptions", "docs/stores/postgres.md"],
    ["src/outbox/outbox.ts", "OutboxOptions", "docs/outbox.md"],
    ["src/stores/mongodb/mongodb-store.ts", "MongoStoreOptions", "docs/stores/mongodb.md"],
    ["src/outbox/reconciler.ts", "ReconcilerOptions", "docs/reconciler.md"],
    ["src/inbox/inbox.ts", "InboxOptions", "docs/inbox.md"],
    ["src/observability/log-events.ts", "LogOptions", "docs/logs.md"],
    ["src/observability/log-events.ts", "EventLogger", "docs/logs.md"],
    ["src/observability/opentelemetry/trace-messages.ts", "TraceOptions", "docs/traces.md"],
    ["src/brokers/in-process/in-process-bus.ts", "InProcessBusOptions", "docs/in-process.md"],
    ["src/brokers/rabbitmq/rabbitmq-publisher.ts", "RabbitmqPublisherOptions", "docs/brokers/rabbitmq.md"],
    ["src/brokers/rabbitmq/rabbitmq-subscriber.ts", "RabbitmqSubscriberOptions", "docs/brokers/rabbitmq.md"],
    ["src/brokers/rabbitmq/rabbitmq-topology.ts", "RabbitmqDeclaration", "docs/brokers/rabbitmq.md"],
    ["src/adapter/subscriber-options.ts", "SubscriberOptions", "docs/brokers/rabbitmq.md"],
    ["src/brokers/redis/redis-publisher-options.ts", "RedisPublisherOptions", "docs/brokers/redis.md"],
    ["src/brokers/redis/redis-subscriber-options.ts", "RedisSubscriberOptions", "docs/brokers/redis.md"],
    ["src/brokers/redis/redis-receipt-filter.ts", "RedisReceiptFilterOptions", "docs/inbox.md"],
    ["src/adapter/subscriber-options.ts", "SubscriberOptions", "docs/brokers/redis.md"],
    ["src/brokers/nats/nats-publisher.ts", "NatsPublisherOptions", "docs/brokers/nats.md"],
    ["src/brokers/nats/nats-subscriber.ts", "NatsSubscriberOptions", "docs/brokers/nats.md"],
    ["src/brokers/kafka/kafka-publisher.ts", "KafkaPublisherOptions", "docs/brokers/kafka.md"],
    ["src/brokers/kafka/kafka-subscriber.ts", "KafkaSubscriberOptions", "docs/brokers/kafka.md"],
    ["src/brokers/kafka/pipeline/kafka-pipeline.ts", "KafkaPipelineOptions", "docs/brokers/kafka.md"],
    ["src/brokers/kafka/kafka-topics.ts", "DeclareTopics", "docs/brokers/kafka.md"],
    ["src/core/admin.ts", "RelayInfo", "docs/operations.md"],
    ["src/core/admin.ts", "StoreFigures", "docs/operations.md"],
    ["src/core/search.ts", "MessageSearch", "docs/finding-messages.md"],
    ["src/core/search.ts", "MessagePage", "docs/finding-messages.md"],
    ["src/core/search.ts", "WaitingQuery", "docs/finding-messages.md"],
    ["src/core/search.ts", "ConsumerInfo", "docs/finding-messages.md"],
    ["src/core/search.ts", "RewindPreview", "docs/finding-messages.md"],
    ["src/admin/story.ts", "Story", "docs/finding-messages.md"],
    ["src/admin/story.ts", "StoryOptions", "docs/finding-messages.md"],
    ["src/observability/prometheus/collect-figures.ts", "CollectFiguresOptions", "docs/metrics.md"],
    ["src/observability/prometheus/collect-metrics.ts", "CollectMetricsOptions", "docs/metrics.md"],
    ["src/observability/health.ts", "HealthOptions", "docs/health.md"],
    ["src/observability/watch-store.ts", "WatchStoreOptions", "docs/alerts.md"],
    ["src/observability/watch-store.ts", "Alert", "docs/alerts.md"],
    ["src/admin/admin-options.ts", "AdminOptions", "docs/page.md"],
    ["src/admin/admin-options.ts", "AdminUser", "docs/page.md"],
    ["src/audit/audit-options.ts", "AuditOptions", "docs/audit.md"],
    ["src/audit/audit-report.ts", "AuditReport", "docs/audit.md"],
    ["src/doctor/diagnose.ts", "DiagnoseOptions", "docs/doctor.md"],
    ["src/stores/postgres/postgres-grants.ts", "GrantRoles", "docs/stores/postgres.md"],
  ])("%s: every field of %s is in %s", (source, name, path) => {
    const { text } = page(path);
    const missing = propertiesOf(source, name).filter((property) => !new RegExp(`\\b${property}\\b`).test(text));
    expect(missing).toEqual([]);
  });

  test("every error code is in the table, and nothing else", () => {
    const rows = page("docs/errors.md").text.matchAll(/^\| `(\w+)` \|[^|]+\|[^|]+\|$/gm);
    const documented = Array.from(rows, (match) => match[1] ?? "");
    expect(documented).toEqual(literalsOf("src/core/errors.ts", "ErrorCode"));
  });

  test("every table of PostgreSQL is in docs/stores/postgres.md", () => {
    const { text } = page("docs/stores/postgres.md");
    expect(postgresTables().filter((table) => !text.includes(`\`${table}\``))).toEqual([]);
  });

  test("every status is in the glossary", () => {
    const { text } = page("docs/glossary.md");
    const statuses = [
      ...literalsOf("src/core/admin.ts", "MessageStatus"),
      ...literalsOf("src/core/contracts.ts", "ReceiptStatus"),
    ];
    expect(statuses.filter((status) => !text.includes(`| \`${status}\` |`))).toEqual([]);
  });

  test("what docs/troubleshooting.md quotes of our errors is what they say", () => {
    const sources = globSync("src/**/*.ts", { cwd: root }).map((file) => readFileSync(join(root, file), "utf8"));
    const section =
      page("docs/troubleshooting.md").text.split("\n## The wrong thing was passed\n")[1]?.split("\n## ")[0] ?? "";
    const quoted = Array.from(section.matchAll(/^\| `([^`]+)`/gm), (match) => match[1] ?? "");
    const parts = quoted.flatMap((text) => text.split(/…|"…"|createPostgresStore/)).map((text) => text.trim());
    const said = parts.filter((text) => text.includes(" "));
    expect(said.length).toBeGreaterThan(3);
    expect(said.filter((text) => !sources.some((source) => source.includes(text.replace(/ "$/, ""))))).toEqual([]);
  });

  test.each(["guarantees", "moving-from-a-table", "moving-from-pg-boss", "multi-tenant"])(
    "the proofs of %s are tests that exist",
    (name) => {
      const proofs = page(`docs/${name}.md`).text.matchAll(/\]\(\.\.\/([^)]+\.ts)\)((?:[\s·]*\*[^*]+\*)+)/g);
      const missing = Array.from(proofs).flatMap(([, file = "", names = ""]) => {
        const tests = readFileSync(join(root, file), "utf8");
        const quoted = Array.from(names.matchAll(/\*([^*]+)\*/g), (match) => (match[1] ?? "").replaceAll(/\s+/g, " "));
        return quoted.filter((name) => !tests.includes(name)).map((name) => `${file}: ${name}`);
      });
      expect(missing).toEqual([]);
    },
  );
});

describe("snippets", () => {
  test("SQL that changes the whole server is in one page only, which has a test of its own", () => {
    const marked = all.flatMap(blocks).filter(({ language, mark }) => language === "sql" && mark !== "");
    expect(new Set(marked.map(({ page: path, mark }) => `${path} ${mark}`))).toEqual(
      new Set(["docs/debezium.md server"]),
    );
  });

  test("complete TypeScript compiles under strict", async () => {
    const documented = all.filter(
      ({ path }) => (path === "README.md" || path.startsWith("docs/")) && !UNMARKED.has(path),
    );
    expect(await compile(documented.flatMap(programs))).toBe("");
  }, 60_000);

  test("the example of the README is first, complete and at most 20 lines long", () => {
    const [first] = blocks(page("README.md"));
    expect(first).toMatchObject({ language: "ts", mark: "" });
    expect(first?.code.split("\n").filter((line) => line.trim() !== "").length).toBeLessThanOrEqual(20);
  });

  test.skipIf(!hasPostgres())("SQL runs", async () => {
    await using database = await testDatabase();
    const pool = new pg.Pool({ connectionString: database.url, max: 1 });
    try {
      await createPostgresStore({ client: pool }).migrator.migrate();
      // What is marked `server` changes the whole server: the test of its page runs it on one of its own.
      const statements = all.flatMap(blocks).filter(({ language, mark }) => language === "sql" && mark !== "server");
      for (const { page: path, line, code } of statements) {
        await expect(pool.query(code), `${path}:${line}`).resolves.toBeDefined();
      }
    } finally {
      await pool.end();
    }
  });
});
