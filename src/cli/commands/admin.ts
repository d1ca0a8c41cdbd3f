import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { createAdmin } from "../../admin/create-admin.ts";
import { isLoopbackAddress } from "../../admin/admin-guard.ts";
import type { Store } from "../../core/contracts.ts";
import { OWN_STORE } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { listenAddress } from "../listen-address.ts";
import { PageServer } from "../page-server.ts";
import { stopSignal } from "../stop-signal.ts";
import { UsageError } from "../usage-error.ts";

const LISTEN = "127.0.0.1:4466";

export const adminCommand: Command = defineCommand({
  name: "admin",
  summary: "the page: whether messages leave, why not, and how to mend it",
  usage: ["admin [--listen HOST:PORT] [--token-file FILE] [--read-only]"],
  about:
    "Serves a web page for the people on call. On this machine alone it needs no login; elsewhere it asks for the token of\n" +
    "--token-file. It shows the store of the configuration and all of its `stores`, so that a message is followed across them.",
  flags: {
    listen: { kind: "text", value: "HOST:PORT", help: `where to serve (default ${LISTEN})` },
    "token-file": {
      kind: "text",
      value: "FILE",
      help: "holds the token that the page asks for, at least 16 characters",
    },
    "read-only": { kind: "switch", help: "nothing can be changed" },
    "hide-bodies": { kind: "switch", help: "bodies and headers of messages are not shown" },
    host: { kind: "list", value: "NAME", help: "a name under which the page is reached; others are refused" },
    title: { kind: "text", value: "TEXT", help: 'stands on top, such as "orders, production"' },
    color: { kind: "text", value: "#RRGGBB", help: "the colour of this environment" },
  },
  examples: [
    ["admin", "for yourself, at http://127.0.0.1:4466/"],
    ["admin --listen 0.0.0.0:4466 --token-file /run/secrets/txbox --host ops.example.com", "in a container"],
    ['admin --read-only --title staging --color "#0f766e"', "to look and change nothing"],
  ],
  async run(context, { flags }) {
    const address = listenAddress("--listen", flags.listen ?? LISTEN, "admin");
    const file = flags["token-file"];
    const isOwn = address.host === "localhost" || isLoopbackAddress(address.host);
    if (!isOwn && file === undefined)
      throw new UsageError(
        `--listen ${address.host} is open to other machines: give --token-file FILE, or listen on ${LISTEN}`,
        { command: "admin" },
      );
    const token = file === undefined ? undefined : tokenOf(resolve(context.cwd, file));
    if (token !== undefined) context.output.secrets.add(token);
    const { config } = await context.loadConfig();
    const stores: Record<string, Store> = {};
    const others = flags.store === undefined ? Object.keys(config.stores ?? {}) : [];
    if (config.database !== undefined || config.store !== undefined || others.length === 0)
      stores[flags.store ?? OWN_STORE] = (await context.open()).store;
    for (const name of others) stores[name] = (await context.openOther(name, "stores")).store;
    const admin = createAdmin({
      stores,
      ...(token === undefined ? {} : { token }),
      ...(flags.host === undefined ? {} : { hosts: flags.host }),
      ...(flags["read-only"] === true ? { readOnly: true } : {}),
      ...(flags["hide-bodies"] === true ? { redact: "hide" as const } : {}),
      ...(config.events === undefined ? {} : { events: config.events }),
      ...(flags.title === undefined ? {} : { title: flags.title }),
      ...(flags.color === undefined ? {} : { color: flags.color }),
    });
    await using server = new PageServer(admin);
    const stop = stopSignal();
    const url = await server.listen(address);
    context.output.result({ url }, () => `The page is at ${url}\n`);
    await new Promise<void>((end) => {
      if (stop.aborted) end();
      stop.addEventListener("abort", () => end(), { once: true });
    });
    return EXIT.ok;
  },
});

function tokenOf(file: string): string {
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    throw new UsageError(`--token-file cannot be read: ${(error as Error).message}`, {
      command: "admin",
      cause: error,
    });
  }
}
