import type { Publisher } from "../core/contracts.ts";
import { messageRecord, plainMessage } from "./json-text.ts";
import type { Output } from "./output.ts";

/**
 * Prints each message as a line of JSON, with `--json` as an event among others. They count as published once the other end
 * of the pipe took them.
 */
export function createStdoutPublisher(output: Output): Publisher {
  return {
    keepsKeyOrder: true,
    async publish(messages) {
      const records = messages.map((message) => messageRecord(plainMessage(message)));
      await output.deliver(output.json ? records.map((message) => ({ type: "message", message })) : records);
      return messages.map(() => ({ status: "published" }));
    },
  };
}
