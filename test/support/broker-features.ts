import type { PublisherFeature, SubscriberFeature } from "../../src/testing/index.ts";

/** A record, so that a new feature that is missing here does not compile. */
const publisher: Readonly<Record<PublisherFeature, true>> = {
  refusal: true,
  oversized: true,
  unroutable: true,
  routes: true,
  outage: true,
  reconnect: true,
  hanging: true,
  closing: true,
  cloudEvents: true,
};
const subscriber: Readonly<Record<SubscriberFeature, true>> = {
  redelivery: true,
  durable: true,
  keyOrder: true,
  orderedRetry: true,
  parallel: true,
  competing: true,
  foreign: true,
  reconnect: true,
  restart: true,
  deadLetters: true,
  byteLimit: true,
};

/** For brokers of which no case is left out. */
export const everyPublisherFeature: readonly PublisherFeature[] = Object.keys(publisher) as PublisherFeature[];
export const everySubscriberFeature: readonly SubscriberFeature[] = Object.keys(subscriber) as SubscriberFeature[];
