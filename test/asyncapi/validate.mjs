// Exports contracts with the command line and gives the document to the official parser of AsyncAPI.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Parser } from "@asyncapi/parser";

const here = fileURLToPath(new URL(".", import.meta.url));
const cli = join(here, "../../src/cli/main.ts");
const EVENTS = ["order/paid (by card)", "order_created", "order_sent"];
const ERROR = 0;

const folder = mkdtempSync(join(tmpdir(), "txbox-asyncapi-"));
try {
  const args = [cli, "contracts", "export", join(here, "events.ts"), "--out", folder];
  const exported = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
  if (exported.status !== 0) throw new Error(`export ended with ${exported.status}: ${exported.stderr}`);
  const text = readFileSync(join(folder, "asyncapi.json"), "utf8");

  const parser = new Parser();
  const { document, diagnostics } = await parser.parse(text);
  for (const { severity, message, path } of diagnostics) console.log(`${severity} ${path.join(".")}: ${message}`);
  if (document === undefined || diagnostics.some(({ severity }) => severity === ERROR)) {
    throw new Error("the parser refuses the document");
  }
  const names = document
    .messages()
    .all()
    .map((message) => message.name());
  if (JSON.stringify(names.sort()) !== JSON.stringify(EVENTS))
    throw new Error(`it has the messages ${names.join(", ")}`);
  for (const message of document.messages().all()) {
    const properties = Object.keys(message.payload()?.properties() ?? {});
    if (!properties.includes("orderId")) throw new Error(`${message.name()} has no payload`);
  }

  // A parser that takes anything would prove nothing.
  const wrong = [
    text.replace('"#/components/messages/order_sent"', '"#/components/messages/nowhere"'),
    text.replace('"type": "object"', '"type": "thing"'),
  ];
  for (const one of wrong) {
    const found = await parser.validate(one);
    if (!found.some(({ severity }) => severity === ERROR)) throw new Error("the parser takes a broken document");
  }
  console.log(
    `AsyncAPI ${document.version()}: ${names.length} messages in ${document.channels().all().length} channels`,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
