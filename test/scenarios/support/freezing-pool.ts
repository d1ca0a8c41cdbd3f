import type pg from "pg";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";

/** A pool that stands still, like that of a paused process, from a statement that matches until it is thawed. */
export function freezingPool(pool: pg.Pool, pattern: RegExp) {
  let thawed = Promise.resolve();
  let release = (): void => undefined;
  let onFrozen: (() => void) | undefined;
  const freeze = (text: string): void => {
    if (onFrozen === undefined || !pattern.test(text)) return;
    thawed = new Promise((resolve) => (release = resolve));
    onFrozen();
    onFrozen = undefined;
  };
  const client: PgPool = {
    async query(config) {
      freeze((config as { text: string }).text);
      await thawed;
      return pool.query(config as pg.QueryConfig);
    },
    async connect() {
      await thawed;
      return pool.connect();
    },
    get totalCount() {
      return pool.totalCount;
    },
  };
  return {
    client,
    /** Resolves when the next statement that matches has come, and nothing goes on any more. */
    frozen: () => new Promise<void>((resolve) => (onFrozen = resolve)),
    thaw: () => release(),
  };
}
