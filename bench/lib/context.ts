import { createDatabase, startPostgres } from "../../test/harness/index.ts";
import type { PostgresServer } from "../../test/harness/index.ts";
import type { ContestantName } from "../contestants/index.ts";
import { withClient } from "./with-client.ts";
import { startPlayer } from "./player.ts";
import type { Player } from "./player.ts";
import type { Report } from "./report.ts";

/** The same for everyone in the run: durable, with room enough that checkpoints do not fall into a round. */
const SETTINGS = { shared_buffers: "512MB", max_wal_size: "8GB", checkpoint_timeout: "30min", track_io_timing: "off" };

/** A quick run should be over by then, on a machine with two cores. */
const QUICK_MS = 46_000;

/** What a section works with. */
export interface Context {
  readonly quick: boolean;
  readonly report: Report;
  readonly server: PostgresServer;
  /** What is left of a quick run's time; without end otherwise. */
  msLeft(): number;
  /** Prints progress. */
  say(text: string): void;
  /** The URL of a new, empty database. */
  database(): Promise<string>;
  /** Writes down all that is in memory only, so that it does not fall into a measurement. */
  checkpoint(): Promise<void>;
  /** Starts a contestant in a process of its own; it ends with the section. `more` is for those that need more. */
  player(name: ContestantName, url: string, ...more: string[]): Player;
  /** The same, with the sources beside another folder of the benchmark. */
  playerIn(bench: string, name: ContestantName, url: string, ...more: string[]): Player;
  /** Ends the players started since the last call. */
  clear(): Promise<void>;
}

export async function createContext(report: Report, quick: boolean): Promise<Context & AsyncDisposable> {
  const server = await startPostgres({ fsync: true, owned: true, settings: SETTINGS });
  let players: Player[] = [];
  const keep = (player: Player): Player => {
    players.push(player);
    return player;
  };
  const clear = async (): Promise<void> => {
    await Promise.all(players.map((player) => player.stop()));
    players = [];
  };
  return {
    quick,
    report,
    server,
    // performance.now() begins with the process.
    msLeft: () => (quick ? QUICK_MS - performance.now() : Number.POSITIVE_INFINITY),
    say(text) {
      const seconds = (performance.now() / 1000).toFixed(1);
      console.log(`${seconds.padStart(6)} s  ${text}`);
    },
    database: async () => (await createDatabase(server.url)).url,
    async checkpoint() {
      await withClient(server.url, (client) => client.query("checkpoint"));
    },
    player: (name, url, ...more) => keep(startPlayer(name, url, more)),
    playerIn: (bench, name, url, ...more) => keep(startPlayer(name, url, more, bench)),
    clear,
    async [Symbol.asyncDispose]() {
      await clear();
      // Nobody needs the data any more, so nothing has to be written down in good order.
      if (!server.external) await server.kill();
      await server.stop();
    },
  };
}
