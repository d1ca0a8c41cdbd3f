import { setTimeout as sleep } from "node:timers/promises";
import { createInbox } from "../../src/inbox/inbox.ts";
import { createRandom } from "./random.ts";
import { connectTo, type FromJournal, onLines, sendLine, type SoakPayload } from "./wire.ts";
import { stageNamed } from "./stage.ts";

const [stageName = "", url = "", port = "", seed = ""] = process.argv.slice(2);
const CONCURRENCY = 8;
const random = createRandom(Number(seed));
const stage = await stageNamed(stageName);
const { store } = stage.openStore(url, CONCURRENCY + 2);
const inbox = createInbox<{ event: SoakPayload }, object>({ store, consumer: "soak" });

inbox.on("event", async (tx, message) => {
  const { key, n, nonce } = message.payload;
  await stage.writeEffect(tx, { key, n, nonce, messageId: message.id });
  // Long enough to be killed in the middle.
  await sleep(random.int(0, 15));
  if (random.chance(0.01)) throw new Error("the handler changed its mind");
});

const socket = await connectTo(Number(port));
socket.on("close", () => process.exit(0));
onLines(socket, (line) => {
  const { delivery, message } = JSON.parse(line) as FromJournal;
  if (delivery === undefined || message === undefined) return;
  const { id, key, position, body } = message;
  inbox.handle({ id, key, position: BigInt(position), type: "event", stream: "soak", body, headers: {} }).then(
    () => sendLine(socket, { op: "ack", delivery }),
    () => sendLine(socket, { op: "nack", delivery }),
  );
});
sendLine(socket, { op: "subscribe", concurrency: CONCURRENCY });
process.stdout.write("started\n");
