import { readerOf, show } from "../shared/show.ts";
import { openShop } from "./service.ts";

const [url = ""] = process.argv.slice(2);
const reader = readerOf(url);
await show({ name: "Kysely", open: async () => openShop(url), query: reader.query });
await reader.close();
