import { describe, expect, test } from "vitest";
import {
  isSubject,
  matchesFilter,
  partitionOf,
  resourceName,
  subjectOf,
  subjectPart,
} from "../../../src/brokers/nats/nats-subject.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";

describe("subjects", () => {
  test.each([
    ["orders", "order_created", "orders.order_created"],
    ["shop.orders", "order.created", "shop.orders.order.created"],
    ["orders", "order créé", "orders.order%20cr%C3%A9%C3%A9"],
    ["orders", "a*b>c", "orders.a%2Ab%3Ec"],
    ["orders", "100%", "orders.100%25"],
    ["orders", ".a..b.", "orders.%2Ea%2E.b%2E"],
    ["$JS", "tab\tline\n", "%24JS.tab%09line%0A"],
    ["orders", "…", "orders.%E2%80%A6"],
    ["orders", "\ud800", "orders.%EF%BF%BD"],
  ])("%j and %j make %j", (stream, type, subject) => {
    expect(subjectOf(sample(stream, 1, { type }))).toBe(subject);
    expect(isSubject(subject)).toBe(true);
  });

  test("any two streams and types have subjects of their own, as far as dots allow", () => {
    const texts = ["a", "A", "a b", "a%20b", "a*", "a>", "ä", "a$", "$a", "%24a"];
    expect(new Set(texts.map(subjectPart)).size).toBe(texts.length);
  });

  test("names of streams have neither dots nor slashes", () => {
    expect(resourceName("shop.orders/eu")).toBe("shop%2Eorders%2Feu");
    expect(resourceName("orders-1_x")).toBe("orders-1_x");
  });

  test("a key has one partition, and keys are spread", () => {
    const of = (key: string): number => partitionOf(key, 8);
    expect(of("customer-1")).toBe(of("customer-1"));
    expect(new Set(Array.from({ length: 200 }, (_, i) => of(`customer-${i}`))).size).toBe(8);
    const message = sample("orders", 1, { key: "customer-1", type: "order_created" });
    expect(subjectOf(message, 8)).toBe(`orders.${of("customer-1")}.order_created`);
  });

  test.each(["", "a b", "a..b", ".a", "a.", "a.*", "a.>", "a\0", 7, undefined])(
    "%j cannot be published to",
    (value) => {
      expect(isSubject(value)).toBe(false);
    },
  );

  test.each([
    ["orders.created", "orders.>", true],
    ["orders", "orders.>", false],
    ["orders.created", "orders.*", true],
    ["orders.eu.created", "orders.*", false],
    ["orders-dead", "orders.>", false],
    ["orders.dead", ">", true],
    ["orders", "orders", true],
  ])("%s matches %s: %s", (subject, filter, matches) => {
    expect(matchesFilter(subject, filter)).toBe(matches);
  });
});
