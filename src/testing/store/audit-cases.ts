import assert from "node:assert/strict";
import { audit } from "../../audit/audit.ts";
import type { AuditOptions } from "../../audit/audit-options.ts";
import type { AuditReport } from "../../audit/audit-report.ts";
import type { Receipt } from "../../core/contracts.ts";
import { uuidv7At } from "../../core/uuid.ts";
import { createMemoryPublisher } from "../memory-publisher.ts";
import { dead, joined, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message, numbered, payloads } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "audit";
const HOUR_MS = 3_600_000;

/** Everything since an hour ago, with nothing too young, unless the case says otherwise. */
function auditOf(context: StoreContext, more: Partial<AuditOptions> = {}): Promise<AuditReport> {
  const since = new Date(Date.now() - HOUR_MS);
  const until = new Date(Date.now() + HOUR_MS);
  return audit({ from: context.store, to: context.store, consumer: "c", since, until, graceMs: 0, ...more });
}

async function publishAll(context: StoreContext, count: number, more = {}): Promise<string[]> {
  const sent = await enqueue(context, ...numbered(1, count, more));
  const consumer = await joined(context.store);
  await consumer.drain();
  await consumer.session.leave();
  return sent.map(({ id }) => id);
}

const receiptOf = (messageId: string, consumer = "c"): Receipt => {
  return { consumer, messageId, type: "t", correlationId: null };
};

async function receive({ store }: StoreContext, ids: readonly string[], consumer = "c"): Promise<void> {
  const { ledger } = store;
  for (const id of ids) await ledger.transaction((tx) => ledger.receive(tx, receiptOf(id, consumer), "processed"));
}

const found = ({ findings }: AuditReport): string[] => findings.map(({ outcome, id }) => `${outcome} ${id}`);

/** What was published, compared with what was received. */
export const auditCases: readonly StoreCase[] = [
  {
    role,
    name: "finds the messages that have no receipt, and none that have",
    async run(context) {
      const ids = await publishAll(context, 25);
      await receive(context, [...ids.slice(0, 3), ...ids.slice(4, 20), ...ids.slice(21)]);
      const report = await auditOf(context);
      assert.deepEqual(found(report), [`missing ${ids[3]}`, `missing ${ids[20]}`]);
      assert.deepEqual([report.checked, report.arrived, report.missing, report.clean], [25, 23, 2, false]);
      assert.ok(
        report.findings.every(({ publishedAt, key, type }) => publishedAt !== null && key === "k" && type === "t"),
      );
      await receive(context, [ids[3]!, ids[20]!]);
      const after = await auditOf(context);
      assert.deepEqual([found(after), after.arrived, after.clean], [[], 25, true]);
    },
  },
  {
    role,
    name: "gives pages that miss nothing and repeat nothing, in order within a key",
    async run(context) {
      const ids = await publishAll(context, 40);
      const { admin } = context.store;
      const query = {
        relay: "r",
        since: new Date(Date.now() - HOUR_MS),
        until: new Date(Date.now() + HOUR_MS),
        limit: 7,
      };
      const seen: string[] = [];
      let pages = 0;
      for (let after: string | null | undefined; after !== null; pages++) {
        const page = await admin.sent({ ...query, ...(after === undefined ? {} : { after }) });
        seen.push(...page.messages.map(({ id }) => id));
        after = page.next;
        assert.ok(pages < 50, "the pages end");
      }
      assert.deepEqual(seen, ids);
      await assert.rejects(admin.sent({ ...query, after: "elsewhere" }), /after/);
      await assert.rejects(admin.sent({ ...query, relay: "missing" }), /There is no relay "missing"/);
    },
  },
  {
    role,
    name: "does not miss what is too young, not published, or of another stream, type or consumer's time",
    async run(context) {
      const ids = await publishAll(context, 3);
      const young = await auditOf(context, { graceMs: HOUR_MS });
      assert.deepEqual([found(young), young.underway, young.clean], [[], 3, true]);
      const others = await auditOf(context, { types: ["other"] });
      assert.deepEqual([others.checked, others.missing], [0, 0]);
      const elsewhere = await auditOf(context, { streams: ["elsewhere"], relay: "r" });
      assert.deepEqual([elsewhere.checked, elsewhere.missing], [0, 0]);
      const [late] = await enqueue(context, message(4));
      const report = await auditOf(context);
      assert.deepEqual(
        found(report),
        ids.map((id) => `missing ${id}`),
      );
      assert.equal(report.backlog.pending, 1);
      assert.ok(late !== undefined && !found(report).includes(`missing ${late.id}`));
    },
  },
  {
    role,
    name: "tells failed, stored and late messages apart",
    async run(context) {
      const [failed, stored, late, fine] = await publishAll(context, 4);
      const { ledger } = context.store;
      await ledger.fail(receiptOf(failed!), "no funds");
      await ledger.transaction((tx) => ledger.receive(tx, receiptOf(stored!), "received"));
      await receive(context, [late!, fine!]);
      const report = await auditOf(context);
      assert.deepEqual(found(report), [`failed ${failed}`, `unhandled ${stored}`]);
      assert.match(report.findings[0]?.lastError ?? "", /no funds/);
      assert.deepEqual([report.failed, report.unhandled, report.arrived], [1, 1, 2]);
      const strict = await auditOf(context, { lateMs: 0 });
      assert.ok(strict.late + strict.arrived === 2 && !strict.clean);
      const patient = await auditOf(context, { graceMs: HOUR_MS, lateMs: HOUR_MS });
      assert.deepEqual([found(patient), patient.underway, patient.arrived], [[], 2, 2]);
    },
  },
  {
    role,
    name: "lists dead letters of the time, and leaves what is retried to the backlog",
    needs: ["promptProgress"],
    async run(context) {
      const consumer = await joined(
        context.store,
        {},
        {
          judge: ({ key }) => (key === "dead" ? dead() : key === "retry" ? retry(1, 60_000) : PUBLISHED),
        },
      );
      const sent = await enqueue(context, message(1, { key: "dead" }), message(2, { key: "retry" }), message(3));
      await consumer.drain();
      const report = await auditOf(context);
      assert.deepEqual(found(report).sort(), [`dead ${sent[0]!.id}`, `missing ${sent[2]!.id}`].sort());
      assert.deepEqual([report.dead, report.missing, report.backlog.pending], [1, 1, 1]);
      assert.equal((await auditOf(context, { types: ["other"] })).dead, 0);
    },
  },
  {
    role,
    name: "says that a receipt is unknown when it is past its time",
    async run(context) {
      const { admin } = context.store;
      const longAgo = Date.now() - 400 * 86_400_000;
      const messages = [
        { id: uuidv7At(longAgo), createdAt: new Date(longAgo) },
        { id: "chosen", createdAt: new Date(longAgo) },
        { id: uuidv7At(Date.now()), createdAt: new Date() },
        { id: "chosen-now", createdAt: new Date() },
      ];
      const receipts = await admin.receipts({ consumer: "c", messages });
      assert.deepEqual(
        receipts.map(({ status }) => status),
        ["expired", "expired", "none", "none"],
      );
      assert.ok(receipts.every(({ receivedAt, attempts }) => receivedAt === null && attempts === 0));
    },
  },
  {
    role,
    name: "finds receipts that a consumer keeps per source",
    async run(context) {
      const { ledger } = context.store;
      if (ledger.keepScope === undefined) return;
      assert.equal(await ledger.keepScope("c", "source"), "source");
      const ids = await publishAll(context, 3);
      await receive(context, [ids[0]!], "c@orders");
      await receive(context, [ids[1]!], "c@refunds");
      await receive(context, [ids[2]!], "cc");
      await ledger.fail(receiptOf(ids[1]!, "c@orders"), "came twice");
      const report = await auditOf(context);
      assert.deepEqual(found(report), [`missing ${ids[2]}`]);
      assert.equal(report.arrived, 2);
    },
  },
  {
    role,
    name: "sends just the missing ones again: the same ids and bodies, in order, marked by a header",
    async run(context) {
      const ids = await publishAll(context, 9);
      await receive(context, [ids[1]!, ids[4]!, ids[5]!, ids[8]!]);
      const lost = [0, 2, 3, 6, 7];
      const publisher = createMemoryPublisher();
      const report = await auditOf(context, { requeue: publisher });
      assert.deepEqual(
        publisher.published.map(({ id }) => id),
        lost.map((n) => ids[n]),
      );
      assert.deepEqual(
        payloads(publisher.published),
        lost.map((n) => n + 1),
      );
      assert.ok(publisher.published.every(({ id, headers }) => headers["replayOf"] === id && headers["replayedAt"]));
      assert.deepEqual(report.requeued, { sent: 5, failed: 0, error: null });
      assert.ok(report.findings.every(({ requeued }) => requeued === true));
      // The second time finds the same, until the consumer has handled them.
      await receive(
        context,
        lost.map((n) => ids[n]!),
      );
      assert.equal((await auditOf(context, { requeue: publisher })).clean, true);
      assert.equal(publisher.published.length, 5);
    },
  },
  {
    role,
    name: "sends no later message of a key after one that was refused",
    async run(context) {
      const ids = await publishAll(context, 4);
      const others = await publishAll(context, 2, { key: "other" });
      const tried: string[] = [];
      const report = await auditOf(context, {
        requeue: {
          keepsKeyOrder: false,
          publish: async (messages) =>
            messages.map(({ id }) => {
              tried.push(id);
              return id === ids[1] ? { status: "failed", error: new Error("refused") } : { status: "published" };
            }),
        },
      });
      assert.deepEqual([...tried].sort(), [ids[0]!, ids[1]!, ...others].sort());
      assert.deepEqual(report.requeued, { sent: 3, failed: 3, error: "Error: refused" });
      const unsent = report.findings.filter(({ requeued }) => requeued === false).map(({ id }) => id);
      assert.deepEqual(unsent.sort(), ids.slice(1).sort());
    },
  },
];
