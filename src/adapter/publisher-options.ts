import type { EnvelopeFormat } from "./envelope.ts";
import { oneOf, optional, text, type OptionSpec } from "./option-spec.ts";

/** Options of every publisher that sends an envelope. */
export interface EnvelopeOptions {
  /** Default "native": txbox-* headers. "cloudevents": CloudEvents 1.0, binary mode. */
  envelope?: EnvelopeFormat;
  /** `source` of CloudEvents. Default: `/<stream>`. */
  source?: string;
}

/** Their specs, to be spread into those of an adapter. */
export const ENVELOPE_OPTIONS: {
  readonly envelope: OptionSpec<EnvelopeFormat>;
  readonly source: OptionSpec<string | undefined>;
} = {
  envelope: oneOf(["native", "cloudevents"], "native"),
  source: optional(text('Pass source: "/orders"')),
};
