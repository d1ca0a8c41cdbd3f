import type pg from "pg";

export interface Explained {
  readonly text: string;
  readonly plan: string;
  /** How many rows came back. */
  readonly rows: number;
}

type Statement = string | { readonly text: string; readonly values?: unknown[] };

const PLANNED = /^\s*(?:select|with|insert|update|delete)\b/i;

/** A pool that notes the plan of every statement, under the settings that it runs with. */
export function explainingPool(pool: pg.Pool): { client: pg.Pool; statements: Explained[] } {
  const statements: Explained[] = [];
  const explaining = (client: pg.Pool | pg.PoolClient) => async (statement: Statement) => {
    const { text, values = [] } = typeof statement === "string" ? { text: statement } : statement;
    const plan = PLANNED.test(text)
      ? (await client.query<{ "QUERY PLAN": string }>(`explain ${text}`, values)).rows.map((row) => row["QUERY PLAN"])
      : [];
    const result = await client.query(statement as string);
    statements.push({ text, plan: plan.join("\n"), rows: result.rows?.length ?? 0 });
    return result;
  };
  const client = replacing(pool, {
    query: explaining(pool),
    connect: async () => {
      const checkedOut = await pool.connect();
      return replacing(checkedOut, { query: explaining(checkedOut) });
    },
  });
  return { client, statements };
}

function replacing<T extends object>(target: T, methods: Readonly<Record<string, unknown>>): T {
  return new Proxy(target, {
    get(from, name) {
      if (typeof name === "string" && name in methods) return methods[name];
      const value: unknown = Reflect.get(from, name);
      return typeof value === "function" ? value.bind(from) : value;
    },
  });
}
