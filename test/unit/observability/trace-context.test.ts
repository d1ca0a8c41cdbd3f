import * as api from "@opentelemetry/api";
import { describe, expect, it } from "vitest";
import { HEADER_TEXT } from "../../../src/core/header-text.ts";
import type { Message } from "../../../src/core/message.ts";
import { readSampledContext } from "../../../src/observability/opentelemetry/trace-context.ts";

const ids = `${"a1".repeat(16)}-${"b2".repeat(8)}`;
const [sampled, unsampled] = [`00-${ids}-01`, `00-${ids}-00`];

/** Headers as they are stored, and whether the message is sampled. */
const STORED: readonly (readonly [string, boolean])[] = [
  [`{"traceparent":"${sampled}"}`, true],
  [`{"traceparent":"${unsampled}"}`, false],
  [`{"schemaVersion" : 1, "traceparent" : "${sampled}"}`, true],
  [`{"schemaVersion" : 1, "traceparent" : "${unsampled}"}`, false],
  [`{"traceparent":"00-${ids}-03"}`, true],
  [`{"traceparent":"00-${ids}-02"}`, false],
  ["{}", false],
  [`{"note":"-01"}`, false],
  // Other ways to write the name, and the name within a value.
  [`{"\\u0074raceparent":"${sampled}"}`, true],
  [`{"traceparent":"${unsampled}","\\u0074raceparent":"${sampled}"}`, true],
  [`{"traceparent":"${unsampled}","traceparent":"${sampled}"}`, true],
  [`{"traceparent":"${sampled}","traceparent":"${unsampled}"}`, false],
  [`{"note":"\\"traceparent\\":\\"${unsampled}\\"","traceparent":"${sampled}"}`, true],
  [`{"note":"\\"traceparent\\":\\"${sampled}\\""}`, false],
  [`{"note":"traceparent","traceparent":"${sampled}"}`, true],
  [`{"a":"traceparent","b":"${unsampled}","traceparent":"${sampled}"}`, true],
  // None that anybody may go by.
  [`{"traceparent":"00-${"0".repeat(32)}-${"b2".repeat(8)}-01"}`, false],
  [`{"traceparent":"${sampled.toUpperCase()}"}`, false],
  [`{"traceparent":1}`, false],
];

describe("whether a message is sampled", () => {
  it.each(STORED)("is told by the stored text as by the headers: %s", (json, expected) => {
    const headers = JSON.parse(json) as Message["headers"];
    for (const message of [{ headers }, { headers, [HEADER_TEXT]: json }])
      expect(readSampledContext(message as Message, api) !== undefined).toBe(expected);
  });

  it("needs no headers where none are stored", () => {
    const message = {
      [HEADER_TEXT]: null,
      get headers(): never {
        throw new Error("asked for its headers");
      },
    };
    expect(readSampledContext(message as unknown as Message, api)).toBeUndefined();
  });
});
