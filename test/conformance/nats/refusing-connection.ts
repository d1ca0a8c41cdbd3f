import type { NatsConnection } from "@nats-io/transport-node";
import type { NatsConnection as Client } from "../../../src/brokers/nats/index.ts";

/** The real connection, but for messages that are to be refused: these are answered here, as JetStream would. */
export function refusingConnection(real: NatsConnection) {
  const refused = new Map<string, "failed" | "rejected">();
  const client = new Proxy(real, {
    get(target, name) {
      if (name !== "publish") {
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      }
      const publish: Client["publish"] = (subject, payload, options) => {
        const id = idOf(options?.headers);
        const how = refused.get(id);
        if (how === undefined) {
          target.publish(subject, payload, options as never);
          return;
        }
        // As the client does, so that nothing tells the difference.
        (options?.headers as { encode?: () => unknown } | undefined)?.encode?.();
        if (how === "failed") refused.delete(id);
        target.publish(options?.reply ?? "", JSON.stringify({ error: answers[how], stream: "", seq: 0 }));
      };
      return publish;
    },
  });
  return {
    client: client as Client,
    refuse: (id: string, how: "failed" | "rejected") => void refused.set(id, how),
  };
}

const answers = {
  failed: { code: 500, err_code: 10_999, description: "refused for once" },
  rejected: { code: 400, err_code: 10_054, description: "message size exceeds maximum allowed" },
};

function idOf(headers: Iterable<[string, string[]]> | undefined): string {
  for (const [name, [value = ""]] of headers ?? []) if (name === "Nats-Msg-Id") return value;
  return "";
}
