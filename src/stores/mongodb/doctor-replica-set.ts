import type { HealthCheck, Symptom } from "../../core/contracts.ts";
import { formatMs } from "../../core/plain-words.ts";
import type { DoctorOptions } from "./doctor.ts";
import type { Document, RawDb } from "./mongodb-client.ts";

const LAG_MS = 30_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const [PRIMARY, SECONDARY] = [1, 2];

interface Member {
  name: string;
  state: number;
  health: number;
  optimeDate?: Date;
}

/** What is wrong with the replica set. */
export function replicaSetChecks({ database, transactions }: DoctorOptions): readonly HealthCheck[] {
  const db = (name: string): RawDb => database.client.db(name) as unknown as RawDb;
  const isReplicaSet = async (): Promise<boolean> =>
    typeof (await database.db.command({ hello: 1 }))["setName"] === "string";
  const check = (name: string, looksAt: string, run: () => Promise<Symptom[]>): HealthCheck => {
    return { name, looksAt, needs: "server", run };
  };
  return [
    check("replica_set", "whether the server is a replica set", async () => {
      const { setName, msg } = await database.db.command({ hello: 1 });
      if (typeof setName === "string" || msg === "isdbgrid") return [];
      return [
        {
          severity: transactions ? "error" : "info",
          finding: "This MongoDB is a standalone server",
          consequence: transactions
            ? "It has no transactions: nothing can be enqueued or received"
            : "It has no change streams: messages are found by polling",
          fix: "Start it with --replSet rs0 and run rs.initiate() once: one node is enough",
        },
      ];
    }),
    check("majority", "members that writes can be confirmed by", async () => {
      if (!(await isReplicaSet())) return [];
      const status = await db("admin").command({ replSetGetStatus: 1 });
      const members = status["members"] as Member[];
      const needed = Number(status["writeMajorityCount"]);
      const able = members.filter(({ state }) => state === PRIMARY || state === SECONDARY).length;
      const away = members.filter(({ health }) => health === 0).map(({ name }) => name);
      if (able > needed || (away.length === 0 && able >= needed)) return [];
      return [
        {
          severity: able < needed ? "error" : "warning",
          finding: `${able} of ${members.length} members hold data and answer, ${needed} are needed${away.length === 0 ? "" : `; away: ${away.join(", ")}`}`,
          consequence:
            able < needed
              ? "Writes with majority concern wait for ever: nothing is enqueued, published or received"
              : "When one more member fails, writes stop",
          fix: "Bring the member back: rs.status() says what is wrong with it",
        },
      ];
    }),
    check("replication_lag", "members that are behind the primary", async () => {
      if (!(await isReplicaSet())) return [];
      const { members } = (await db("admin").command({ replSetGetStatus: 1 })) as { members?: Member[] };
      const newest = Math.max(...(members ?? []).map(({ optimeDate }) => optimeDate?.getTime() ?? 0));
      return (members ?? []).flatMap(({ name, state, optimeDate }): Symptom[] => {
        const lag = newest - (optimeDate?.getTime() ?? newest);
        if (state !== SECONDARY || lag < LAG_MS) return [];
        return [
          {
            severity: "warning",
            finding: `${name} is ${formatMs(lag)} behind the primary`,
            consequence: "Writes with majority concern may wait for it; a failover to it would take as long",
            fix: "rs.printSecondaryReplicationInfo(); look at the disk, network and load of that member",
          },
        ];
      });
    }),
    check("oplog_window", "how much time the oplog holds", async () => {
      if (!(await isReplicaSet())) return [];
      return oplogWindow(db("local"));
    }),
  ];
}

async function oplogWindow(local: RawDb): Promise<Symptom[]> {
  const stats = await local.command({ collStats: "oplog.rs" });
  // One that is not full yet has cut off nothing: its time grows.
  if (Number(stats["size"]) < 0.9 * Number(stats["maxSize"])) return [];
  const oplog = local.collection("oplog.rs");
  const end = async ($natural: 1 | -1): Promise<number> => {
    const row = (await oplog.findOne({}, { sort: { $natural }, projection: { ts: 1 } })) as Document;
    return (row["ts"] as { getHighBits(): number }).getHighBits() * 1000;
  };
  const windowMs = (await end(-1)) - (await end(1));
  if (windowMs >= DAY_MS) return [];
  return [
    {
      severity: windowMs < HOUR_MS ? "error" : "warning",
      finding: `The oplog holds ${formatMs(windowMs)}`,
      consequence:
        "A member that is away for longer has to be copied anew. A relay by change stream that stops for longer begins with a scan",
      fix: "db.adminCommand({ replSetResizeOplog: 1, size: 10240, minRetentionHours: 24 }) on each member",
    },
  ];
}
