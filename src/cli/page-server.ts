import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { AdminHandler } from "../admin/create-admin.ts";
import { toNodeHandler } from "../admin/node-handler.ts";
import { errorCode } from "../core/errors.ts";
import type { ListenAddress } from "./listen-address.ts";

/** Serves the page until it is disposed of. */
export class PageServer implements AsyncDisposable {
  readonly #admin: AdminHandler;
  readonly #server: Server;

  constructor(admin: AdminHandler) {
    this.#admin = admin;
    const handle = toNodeHandler(admin);
    this.#server = createServer((request, response) => void handle(request, response));
    this.#server.requestTimeout = 30_000;
    this.#server.keepAliveTimeout = 65_000;
  }

  /** The address to open; throws when it cannot be had. */
  async listen({ host, port }: ListenAddress): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once("error", (error) => {
      const taken = errorCode(error) === "EADDRINUSE";
      const reason = taken ? "the port is taken. Choose another one" : error.message;
      reject(new Error(`The page cannot be served at ${host}:${port}: ${reason}`, { cause: error }));
    });
    this.#server.listen({ host, port }, resolve);
    await promise;
    this.#server.on("error", () => undefined);
    const { address, port: given, family } = this.#server.address() as AddressInfo;
    return `http://${family === "IPv6" ? `[${address}]` : address}:${given}/`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#admin.close();
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
