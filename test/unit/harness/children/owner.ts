// Starts a server, tells its pid and data folder, and waits to be killed.
import { startPostgres } from "../../../harness/index.ts";

const server = await startPostgres({ owned: true });
process.stdout.write(`ready ${server.pid} ${server.url}\n`);
setInterval(() => undefined, 1000);
