import type pg from "pg";

/** A transaction of the application: committed when `run` resolves, rolled back when it throws. */
export async function inTransaction<T>(pool: pg.Pool, run: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const result = await run(client);
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}
