export type { RabbitmqConnection } from "./rabbitmq-client.ts";
export { createRabbitmqPublisher } from "./rabbitmq-publisher.ts";
export type { RabbitmqPublisherOptions } from "./rabbitmq-publisher.ts";
export { rabbitmqUrls } from "./rabbitmq-urls.ts";
export type { RabbitmqAddress } from "./rabbitmq-urls.ts";
export { createRabbitmqSubscriber } from "./rabbitmq-subscriber.ts";
export type { RabbitmqSubscriberOptions } from "./rabbitmq-subscriber.ts";
export type { RabbitmqDeadLetter, RabbitmqDeclaration } from "./rabbitmq-topology.ts";
export type { RabbitmqRoute } from "./rabbitmq-route.ts";
