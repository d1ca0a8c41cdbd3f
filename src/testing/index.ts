export { missingFeatures, runConformance, titleOf, type ConformanceCase, type ConformanceRun } from "./conformance.ts";
export { storeConformance } from "./store/store-conformance.ts";
export type {
  AnotherOptions,
  AnyTx,
  RestoredCopy,
  Retention,
  StoreCase,
  StoreContext,
  StoreFeature,
} from "./store/store-context.ts";
export { publisherConformance, subscriberConformance } from "./broker/broker-conformance.ts";
export type {
  AsideMessage,
  BrokenRoute,
  PublisherCase,
  PublisherContext,
  PublisherFeature,
  SubscriberCase,
  SubscriberContext,
  SubscriberFeature,
  SubscriberLimits,
} from "./broker/broker-context.ts";
export { CONFORMANCE_ATTEMPTS } from "./broker/broker-context.ts";
export { withCrashPoints, type CrashPoint } from "./crash-points.ts";
export { eventually, within, type EventuallyOptions } from "./eventually.ts";
export { fakeClock, type FakeClock } from "./fake-clock.ts";
export {
  createMemoryPublisher,
  type MemoryPublisher,
  type MemoryPublisherOptions,
  type Verdict,
} from "./memory-publisher.ts";
