import type pg from "pg";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";

export interface FlakyPool {
  readonly client: PgPool;
  /** The next `times` statements that match are carried out, but their answer is lost with the connection. */
  loseAnswer(pattern: RegExp, times?: number): void;
  /** How often an answer was lost so far. */
  readonly lost: number;
}

/** A pool whose connections break at chosen statements, at the worst moment: after the server has done its work. */
export function flakyPool(pool: pg.Pool): FlakyPool {
  let pattern: RegExp | undefined;
  let left = 0;
  let lost = 0;
  const breaks = (config: string | object): boolean => {
    const text = typeof config === "string" ? config : (config as { text: string }).text;
    if (left === 0 || pattern?.test(text) !== true) return false;
    left--;
    lost++;
    return true;
  };
  const client: PgPool = {
    async query(config) {
      const result: unknown = await pool.query(config as pg.QueryConfig);
      if (breaks(config)) throw connectionReset();
      return result;
    },
    async connect() {
      const real = await pool.connect();
      let broken = false;
      return {
        connection: (real as unknown as { connection: object }).connection,
        async query(config: string | object) {
          if (broken) throw connectionReset();
          if (isSubmittable(config)) {
            const failing = breaks(config) ? failingAtItsEnd(config, () => (broken = true)) : config;
            return real.query(failing as never);
          }
          const result: unknown = await real.query(config as pg.QueryConfig);
          if (!breaks(config)) return result;
          broken = true;
          throw connectionReset();
        },
        release: (error?: Error | boolean) => real.release(broken ? true : error),
        getTransactionStatus: () =>
          (real as unknown as { getTransactionStatus(): string | null }).getTransactionStatus(),
        on: real.on.bind(real),
        removeListener: real.removeListener.bind(real),
      };
    },
    get totalCount() {
      return pool.totalCount;
    },
  };
  return {
    client,
    loseAnswer(what, times = 1) {
      pattern = what;
      left = times;
    },
    get lost() {
      return lost;
    },
  };
}

/** A query that the driver hands the messages of the server to, such as a COPY. */
interface Submittable {
  submit: unknown;
  handleError(error: unknown): void;
}

function isSubmittable(query: string | object): query is Submittable {
  return typeof query === "object" && "submit" in query;
}

/** Its rows arrive, and then the connection breaks. */
function failingAtItsEnd(query: Submittable, onFailure: () => void): Submittable {
  return new Proxy(query, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      if (name !== "handleReadyForQuery") return value.bind(target) as unknown;
      return () => {
        onFailure();
        target.handleError(connectionReset());
      };
    },
  });
}

function connectionReset(): Error {
  return Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
}
