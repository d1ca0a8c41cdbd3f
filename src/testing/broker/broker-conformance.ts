import type { PublisherCase, SubscriberCase } from "./broker-context.ts";
import { byteLimitCases } from "./byte-limit-cases.ts";
import { publisherCloudEventCases, subscriberCloudEventCases } from "./cloud-event-cases.ts";
import { publisherCases } from "./publisher-cases.ts";
import { publisherFailureCases } from "./publisher-failure-cases.ts";
import { publisherRouteCases } from "./publisher-route-cases.ts";
import { subscriberCases } from "./subscriber-cases.ts";
import { subscriberFailureCases } from "./subscriber-failure-cases.ts";

/** What every publisher must do, as data; see docs/writing-an-adapter.md. */
export const publisherConformance: readonly PublisherCase[] = [
  ...publisherCases,
  ...publisherCloudEventCases,
  ...publisherFailureCases,
  ...publisherRouteCases,
];

/** What every subscriber must do. */
export const subscriberConformance: readonly SubscriberCase[] = [
  ...subscriberCases,
  ...subscriberCloudEventCases,
  ...byteLimitCases,
  ...subscriberFailureCases,
];
