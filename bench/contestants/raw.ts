import pg from "pg";
import type { Contestant, DrainOptions, DrainResult } from "../lib/contestant.ts";

/** The columns that a relay reads. */
const COLUMNS =
  "position, id, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body, created_at, lane";
const PAGE = `select ${COLUMNS} from txbox.message where position > $1 order by position limit $2`;

const asText = { getTypeParser: () => (value: string) => value };

type Row = (string | null)[];

/**
 * The limit: reads the log by position, page by page, rows as arrays of text, the next page on its way while the present
 * one is handed over. It settles nothing and skips what commits out of order, so nobody could use it.
 */
export function createRaw(url: string): Contestant {
  return {
    setup: () => Promise.resolve(),
    async drain({ messages, batch = 1000 }: DrainOptions): Promise<DrainResult> {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      const page = async (after: string): Promise<Row[]> => {
        const values = [after, batch];
        const result = await client.query<Row>({ text: PAGE, values, rowMode: "array", types: asText });
        return result.rows;
      };
      let handled = 0;
      const started = performance.now();
      let ahead = page("0");
      for (;;) {
        const rows = await ahead;
        const last = rows.at(-1)?.[0];
        if (last == null) break;
        ahead = page(last);
        handled += rows.length;
      }
      const ms = performance.now() - started;
      await client.end();
      return { handled, left: messages - handled, ms };
    },
  };
}
