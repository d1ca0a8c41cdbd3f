import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { BrowserContextOptions, Page } from "playwright-core";
import { type AdminOptions, toNodeHandler } from "../../src/admin/index.ts";
import type { AdminScene } from "../support/admin-scene.ts";

export interface ServedPage extends AsyncDisposable {
  readonly url: string;
  /** The server goes away, as when its process ends. */
  stop(): Promise<void>;
  /** It is back at the same port. */
  restart(): Promise<void>;
}

/** The page of a scene, over a real HTTP server. */
export async function servePage(
  scene: Pick<AdminScene, "admin">,
  options: Partial<AdminOptions> = {},
): Promise<ServedPage> {
  let server: Server | undefined;
  let port = 0;
  const start = async (): Promise<void> => {
    const handle = toNodeHandler(scene.admin(options));
    server = createServer((request, response) => void handle(request, response));
    await new Promise<void>((resolve, reject) => {
      server!.once("error", reject);
      server!.listen(port, "127.0.0.1", resolve);
    });
    ({ port } = server.address() as AddressInfo);
  };
  const stop = async (): Promise<void> => {
    server?.close();
    server?.closeAllConnections();
    server = undefined;
  };
  await start();
  return { url: `http://127.0.0.1:${port}/`, stop, restart: start, [Symbol.asyncDispose]: stop };
}

export const WIDE: BrowserContextOptions = { viewport: { width: 1280, height: 900 } };
export const NARROW: BrowserContextOptions = { viewport: { width: 390, height: 844 }, hasTouch: true };

/** What a browser complains about: errors of scripts, and what the policy of the page refused. */
export function complaintsOf(page: Page): string[] {
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    const isAway = /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/.test(
      message.text(),
    );
    if (message.type() === "error" && !isAway) complaints.push(message.text());
  });
  return complaints;
}
