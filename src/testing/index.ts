export { missingFeatures, runConformance, titleOf, type ConformanceCase, type ConformanceRun } from "./conformance.ts";
export { eventually, within, type EventuallyOptions } from "./eventually.ts";
export { fakeClock, type FakeClock } from "./fake-clock.ts";
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
