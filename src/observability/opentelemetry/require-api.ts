import { TxboxError } from "../../core/errors.ts";
import { valueKind } from "../../core/value-kind.ts";

const PARTS = { trace: "getTracer", metrics: "getMeter" } as const;

/** The module `@opentelemetry/api`, or something that looks like it. */
export function requireApi(of: string, api: unknown, part: keyof typeof PARTS): void {
  const found = (api as Record<string, Record<string, unknown> | undefined> | null | undefined)?.[part];
  if (typeof found?.[PARTS[part]] === "function") return;
  throw new TxboxError("invalid_option", `${of} needs the API of OpenTelemetry, got ${valueKind(api)}`, {
    field: "api",
    fix: `Pass { api } with: import * as api from "@opentelemetry/api"`,
  });
}
