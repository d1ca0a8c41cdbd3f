/** What the brokers of txbox share, for authors of another one: see docs/writing-an-adapter.md. */
export { answerWithin } from "./answer-within.ts";
export { createPublisher, type Batch, type PublisherParts } from "./create-publisher.ts";
export { createSubscriber, type BeginSubscription } from "./create-subscriber.ts";
export { RunsOnce, type Subscription } from "./runs-once.ts";
export { Deliveries, openDelivery, sizeOf, type Delivery } from "./deliveries.ts";
export { HeldMessages, type HeldMessagesOptions, type Refusals } from "./held-messages.ts";
export { inBatches, type BatchLimits } from "./in-batches.ts";
export { publishInBatches, type InBatchesOptions } from "./publish-in-batches.ts";
export { repeat } from "./repeat.ts";
export { EncodedAhead } from "./encoded-ahead.ts";
export { fieldText } from "./field-text.ts";
export { packFields, unpackFields } from "./packed-fields.ts";
export { decodeEnvelope, encodeEnvelope, type EnvelopeFormat } from "./envelope.ts";
export {
  bytesOf,
  decodeText,
  encodeText,
  fieldName,
  put,
  textOrBytes,
  type Fields,
  type Transport,
} from "./transport.ts";
export {
  backoff,
  callback,
  clock,
  flag,
  integer,
  invalidOption,
  methods,
  milliseconds,
  names,
  oneOf,
  optional,
  readOptions,
  required,
  requireMethods,
  text,
  type OptionSpec,
  type OptionSpecs,
  type RenamedOptions,
  type SettingsOf,
} from "./option-spec.ts";
export { ENVELOPE_OPTIONS, type EnvelopeOptions } from "./publisher-options.ts";
export {
  SUBSCRIBER_OPTIONS,
  subscriberSettings,
  type SubscriberOptions,
  type SubscriberSettings,
} from "./subscriber-options.ts";
export { SubscriberOutage } from "./subscriber-outage.ts";
export { BatchResults, groupByKey, orderOf, type Keyed } from "../core/batch-results.ts";
export { publishByKey, type ByKeyOptions } from "../core/by-key.ts";
export { systemClock } from "../core/clock.ts";
export { deadLetterName } from "./dead-letter-name.ts";
export { deadHeaders, type DeadHeaders } from "../core/dead-letter.ts";
export { describeError, errorCode } from "../core/errors.ts";
export { givenUp, mayBegin } from "../core/may-begin.ts";
export { failureOf } from "../core/publish-each.ts";
export { ABORTED, LATE, settledWithin } from "../core/settled-within.ts";
export type { SubscriberEvent } from "../core/events.ts";
