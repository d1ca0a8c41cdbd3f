import { settledWithin } from "../../adapter/index.ts";

interface Closable {
  on(event: "close", listener: () => void): unknown;
  close(): Promise<void>;
}

const PATIENCE_MS = 3000;

/** Closes a channel, whatever state it is in. One whose connection dies meanwhile never answers. */
export async function endChannel(channel: Closable): Promise<void> {
  const ended = new Promise<void>((resolve) => channel.on("close", resolve));
  await settledWithin(Promise.race([close(channel), ended]), PATIENCE_MS);
}

async function close(channel: Closable): Promise<void> {
  try {
    await channel.close();
  } catch {
    // The server has closed it already.
  }
}
