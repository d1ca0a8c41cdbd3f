import * as api from "@opentelemetry/api";
import { describe, expect, it } from "vitest";
import type { HeaderLook } from "../../../src/core/header-bytes.ts";
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
  // The name twice, and within a value.
  [`{"traceparent":"${sampled}","traceparent":"${unsampled}"}`, false],
  [`{"note":"\\"traceparent\\":\\"${unsampled}\\"","traceparent":"${sampled}"}`, true],
  [`{"note":"\\"traceparent\\":\\"${sampled}\\""}`, false],
  [`{"xtraceparent":"${unsampled}","traceparentx":"${unsampled}","traceparent":"${sampled}"}`, true],
  [`{"${"t".repeat(40)}":"${"traceparen".repeat(9)}","traceparent":"${sampled}"}`, true],
  [`{"note":"traceparent","traceparent":"${sampled}"}`, true],
  [`{"a":"traceparent","b":"${unsampled}","traceparent":"${sampled}"}`, true],
  // None of these is a valid context.
  [`{"traceparent":"00-${"0".repeat(32)}-${"b2".repeat(8)}-01"}`, false],
  [`{"traceparent":"${sampled.toUpperCase()}"}`, false],
  [`{"traceparent":1}`, false],
];

describe("whether a message is sampled", () => {
  it.each(STORED)("is told by the stored text as by the headers: %s", (json, expected) => {
    const headers = JSON.parse(json) as Message["headers"];
    // Beside what belongs to others.
    const bytes = Buffer.from(`"traceparent"${json}"traceparent":"${sampled}"`);
    const look = (how: HeaderLook) => how(bytes, 13, 13 + Buffer.byteLength(json));
    for (const message of [{ headers }, { headers, lookAtHeaders: look }])
      expect(readSampledContext(message as Message, api) !== undefined).toBe(expected);
  });

  it("needs no headers where none are stored", () => {
    const message = {
      lookAtHeaders: (how: HeaderLook) => how(Buffer.alloc(0), 0, 0),
      get headers(): never {
        throw new Error("asked for its headers");
      },
    };
    expect(readSampledContext(message as unknown as Message, api)).toBeUndefined();
  });
});
