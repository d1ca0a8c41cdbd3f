import type { JetStreamApi } from "./jetstream-api.ts";

/** A stream or consumer to be created, in JetStream's own words: `{ max_age: 7 * 86_400e9, num_replicas: 3 }`. */
export type JetStreamConfig = Readonly<Record<string, unknown>>;

/** Creates a stream that keeps messages in files, unless one of that name is there. */
export async function declareStream(
  api: JetStreamApi,
  name: string,
  subjects: readonly string[],
  more: JetStreamConfig = {},
): Promise<void> {
  await api.createStream({
    retention: "limits",
    storage: "file",
    discard: "old",
    num_replicas: 1,
    subjects,
    ...more,
    name,
  });
}
