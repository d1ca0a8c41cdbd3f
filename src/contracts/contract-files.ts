import { TxboxError } from "../core/errors.ts";
import type { EventContract } from "../core/event-contract.ts";
import { asyncapiDocument, readAsyncapi, schemaDocument } from "./asyncapi-document.ts";

export const ASYNCAPI_FILE = "asyncapi.json";

/** What is to be committed: the AsyncAPI document, and a JSON Schema for each event. By name of the file. */
export function contractFiles(contracts: readonly EventContract[], title: string): ReadonlyMap<string, string> {
  const files = new Map([[ASYNCAPI_FILE, textOf(asyncapiDocument(contracts, title))]]);
  const owners = new Map<string, string>();
  for (const contract of contracts) {
    const name = schemaFile(contract.type);
    // Some disks do not tell large letters from small ones.
    const owner = owners.get(name.toLowerCase());
    if (owner !== undefined) {
      throw new TxboxError("invalid_option", `The events ${owner} and ${contract.type} would share the file ${name}`, {
        fix: "Give one of them a name that differs in more than large letters",
      });
    }
    owners.set(name.toLowerCase(), contract.type);
    files.set(name, textOf(schemaDocument(contract)));
  }
  return files;
}

/** The schemas of events that an earlier document has and these files have not. */
export function leftOver(earlier: unknown, files: ReadonlyMap<string, string>): string[] {
  return readAsyncapi(earlier, ASYNCAPI_FILE)
    .events.map(({ type }) => schemaFile(type))
    .filter((name) => !files.has(name));
}

/** No name leads out of the folder. */
function schemaFile(type: string): string {
  return `${encodeURIComponent(type).replaceAll("*", "%2A").replace(/^\./, "%2E")}.schema.json`;
}

function textOf(document: unknown): string {
  return `${JSON.stringify(document, undefined, 2)}\n`;
}
