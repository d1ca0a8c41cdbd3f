import type pg from "pg";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";

/** Stands in for the database; `send` asks it after all. */
export type Answer = (send: () => Promise<unknown>) => Promise<unknown>;

export interface InterceptingPool {
  readonly client: PgPool;
  /** Resolves when the next statement that matches was caught; `answer` answers it. */
  intercept(pattern: RegExp, answer: Answer): Promise<void>;
}

/** A query that the driver hands the messages of the server to, such as a COPY. */
interface Submittable {
  text: string;
  submit: unknown;
  handleError(error: unknown): void;
}

/** A pool whose user can be answered by the test instead of the database. */
export function interceptingPool(pool: pg.Pool): InterceptingPool {
  const waiting = new Map<RegExp, { answer: Answer; caught: () => void }>();

  function caught(text: string): Answer | undefined {
    const found = [...waiting].find(([pattern]) => pattern.test(text));
    if (found === undefined) return undefined;
    waiting.delete(found[0]);
    found[1].caught();
    return found[1].answer;
  }

  /** With its answer kept back, the statement is still run, and its rows are dropped. */
  function submit(client: pg.PoolClient, query: Submittable): void {
    const answer = caught(query.text);
    const pass = () => void client.query(query as never);
    if (answer === undefined) return pass();
    answer(() => pool.query(query.text)).then(pass, (error: unknown) => query.handleError(error));
  }

  async function connect(): Promise<pg.PoolClient> {
    const client = await pool.connect();
    return new Proxy(client, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== "function") return value;
        if (name !== "query") return value.bind(target) as unknown;
        return (query: object, ...rest: unknown[]): unknown =>
          "submit" in Object(query) ? submit(target, query as Submittable) : value.call(target, query, ...rest);
      },
    });
  }

  return {
    client: {
      query(config) {
        const { text } = config as { text: string };
        const send = () => pool.query(config as pg.QueryConfig);
        const answer = caught(text);
        return answer === undefined ? send() : answer(send);
      },
      connect,
      get totalCount() {
        return pool.totalCount;
      },
    },
    intercept: (pattern, answer) => new Promise((resolve) => waiting.set(pattern, { answer, caught: resolve })),
  };
}
