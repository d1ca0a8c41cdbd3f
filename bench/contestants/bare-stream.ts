import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { Contestant } from "../lib/contestant.ts";
import { ReplicationConnection } from "../../src/stores/postgres/wal/replication-connection.ts";

const SLOT = "bench_bare";

/** Reads the log of txbox from a replication slot and only counts: the limit of a stream. */
export function createBareStream(url: string): Contestant {
  const connect = () => new pg.Client({ connectionString: url, replication: "database" } as pg.ClientConfig);
  let heard = 0;
  return {
    setup: () => Promise.resolve(),
    async listen() {
      const connection = await ReplicationConnection.open(connect);
      await connection.query(`CREATE_REPLICATION_SLOT ${SLOT} LOGICAL pgoutput NOEXPORT_SNAPSHOT`);
      const command = `START_REPLICATION SLOT ${SLOT} LOGICAL 0/0 (proto_version '1', publication_names '"txbox"', messages 'true')`;
      await connection.start(command, 0n, {
        event(event) {
          if (event.kind === "insert") heard++;
          if (event.kind === "commit") connection.confirm(event.lsn);
        },
        ended: () => undefined,
      });
      return {
        arrivals: () => [],
        async stop() {
          connection.close();
          const client = new pg.Client({ connectionString: url });
          await client.connect();
          for (let tries = 0; tries < 100; tries++) {
            const dropped = client.query("select pg_drop_replication_slot($1)", [SLOT]);
            if (await dropped.then(() => true).catch(() => false)) break;
            await sleep(20);
          }
          await client.end();
        },
      };
    },
    async hear(messages) {
      const started = performance.now();
      const goal = heard + messages;
      while (heard < goal) await sleep(2);
      return performance.now() - started;
    },
  };
}
