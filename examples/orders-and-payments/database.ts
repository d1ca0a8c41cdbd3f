import pg from "pg";

export function openPool(connectionString: string): pg.Pool {
  const pool = new pg.Pool({ connectionString, max: 12, connectionTimeoutMillis: 5000 });
  // A broken idle connection must not end the process.
  pool.on("error", (error) => console.error(`database: ${error.message}`));
  return pool;
}

export async function inTransaction<T>(pool: pg.Pool, run: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const tx = await pool.connect();
  let broken: unknown;
  try {
    await tx.query("begin");
    const result = await run(tx);
    await tx.query("commit");
    return result;
  } catch (error) {
    await tx.query("rollback").catch((reason: unknown) => (broken = reason));
    throw error;
  } finally {
    tx.release(broken !== undefined);
  }
}
