import pg from "pg";
import { storeParts } from "./postgres-drivers.ts";

const [url, schema = "txbox"] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: url, max: 1 });
const applied = await storeParts({ client: pool }, { schema }).migrator.migrate({
  onProgress: ({ title }) => void process.stdout.write(`${title}\n`),
});
process.stdout.write(`applied ${applied.length}\n`);
await pool.end();
