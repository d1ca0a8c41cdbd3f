import type pg from "pg";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";

/** Stands in for the database; `send` asks it after all. */
export type Answer = (send: () => Promise<unknown>) => Promise<unknown>;

export interface InterceptingPool {
  readonly client: PgPool;
  /** Resolves when the next statement that matches was caught; `answer` answers it. */
  intercept(pattern: RegExp, answer: Answer): Promise<void>;
}

/** A pool whose user can be answered by somebody else than the database. */
export function interceptingPool(pool: pg.Pool): InterceptingPool {
  const waiting = new Map<RegExp, { answer: Answer; caught: () => void }>();
  return {
    client: {
      query(config) {
        const { text } = config as { text: string };
        const send = () => pool.query(config as pg.QueryConfig);
        const found = [...waiting].find(([pattern]) => pattern.test(text));
        if (found === undefined) return send();
        const [pattern, { answer, caught }] = found;
        waiting.delete(pattern);
        caught();
        return answer(send);
      },
      connect: () => pool.connect(),
      get totalCount() {
        return pool.totalCount;
      },
    },
    intercept: (pattern, answer) => new Promise((caught) => waiting.set(pattern, { answer, caught })),
  };
}
