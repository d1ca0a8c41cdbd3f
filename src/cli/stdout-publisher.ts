import type { Publisher } from "../core/contracts.ts";
import { UnavailableError } from "../core/errors.ts";
import type { Message } from "../core/message.ts";
import { jsonText, messageRecord, plainMessage } from "./json-text.ts";

export interface StdoutPublisherOptions {
  /** Each message as an event among others, instead of alone. */
  readonly asEvents: boolean;
}

/** Prints each message as a line of JSON. They count as published once the other end of the pipe took them. */
export function createStdoutPublisher({ asEvents }: StdoutPublisherOptions): Publisher {
  const lineOf = (message: Message): string => {
    const record = messageRecord(plainMessage(message));
    return `${jsonText(asEvents ? { type: "message", message: record } : record)}\n`;
  };
  return {
    keepsKeyOrder: true,
    async publish(messages) {
      await write(messages.map(lineOf).join(""));
      return messages.map(() => ({ status: "published" }));
    },
  };
}

function write(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => {
      if (error) reject(new UnavailableError("Nobody reads stdout any more", { cause: error }));
      else resolve();
    });
  });
}
