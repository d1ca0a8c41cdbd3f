/** Enough to run statements with node-postgres and PGlite, for callers that do not name their driver's own type. */
export interface SqlTransaction {
  query(text: string, params?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>;
}
