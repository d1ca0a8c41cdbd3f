import { PGlite } from "@electric-sql/pglite";
import { readerOf, show } from "../shared/show.ts";
import { besideOnNodePostgres, besideOnPostgresJs } from "./beside.ts";
import { onNodePostgres, onPglite, onPostgresJs } from "./open.ts";

const [url = "", other = ""] = process.argv.slice(2);

const one = readerOf(url);
await show({ name: "Drizzle on node-postgres", open: async () => onNodePostgres(url), query: one.query });
await besideOnNodePostgres(url);
await one.close();

const two = readerOf(other);
await show({ name: "Drizzle on postgres.js", open: async () => onPostgresJs(other), query: two.query });
await besideOnPostgresJs(other);
await two.close();

const pglite = new PGlite();
await show({
  name: "Drizzle on PGlite",
  open: async () => onPglite(pglite),
  hasSessions: false,
  query: async (text) => (await pglite.query<Record<string, unknown>>(text)).rows,
});
