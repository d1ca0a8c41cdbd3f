import { mavenJars } from "./maven-jars.ts";

const VERSION = "4.1.0";

/** The folder with Kafka and all it needs (43 MB). */
export function kafkaJars(): Promise<string> {
  return mavenJars(`kafka-${VERSION}`, [`org.apache.kafka:kafka_2.13:${VERSION}`]);
}
