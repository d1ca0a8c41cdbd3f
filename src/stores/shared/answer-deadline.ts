import { TxboxError } from "../../core/errors.ts";

/**
 * Gives up on an answer after a while: a connection that breaks unnoticed would hold its caller for ever. Whether the
 * request has arrived is unknown then, as with any broken connection.
 */
export async function answeredWithin<T>(answer: Promise<T>, deadlineMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const give = () =>
      reject(new TxboxError("unavailable", `The database did not answer within ${deadlineMs} ms`, { retryable: true }));
    timer = setTimeout(give, deadlineMs);
  });
  // No code waits for the one that comes second: its rejection must not end the process.
  answer.catch(() => undefined);
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
