import type { MongoClient } from "mongodb";

export interface Intercepted {
  readonly collection: string;
  readonly method: string;
  readonly args: unknown[];
}

/** Does instead of the call what it likes; `proceed` is the call itself, with the same or other arguments. */
export type Intercept = (call: Intercepted, proceed: (...args: unknown[]) => unknown) => unknown;

export interface InterceptingMongo {
  readonly client: MongoClient;
  intercept: Intercept | undefined;
  /** For `find` and `aggregate`, which give a cursor at once. */
  interceptRead: Intercept | undefined;
}

const READS = new Set(["find", "aggregate"]);

/** A client whose collections can be made to lose, delay or change single operations. */
export function interceptingMongo(client: MongoClient): InterceptingMongo {
  const handle: InterceptingMongo = { client, intercept: undefined, interceptRead: undefined };
  const wrapped = (target: object, name: string): object =>
    new Proxy(target, {
      get(of, method) {
        const value: unknown = Reflect.get(of, method, of);
        if (typeof value !== "function" || typeof method !== "string") return value;
        return (...args: unknown[]): unknown => {
          const proceed = (...given: unknown[]): unknown =>
            Reflect.apply(value, of, given.length > 0 ? given : args) as unknown;
          const intercept = READS.has(method) ? handle.interceptRead : handle.intercept;
          return intercept === undefined ? proceed() : intercept({ collection: name, method, args }, proceed);
        };
      },
    });
  const proxied = new Proxy(client, {
    get(of, property) {
      const value: unknown = Reflect.get(of, property, of);
      if (property !== "db") return typeof value === "function" ? (value.bind(of) as unknown) : value;
      return (name?: string) => {
        const db = of.db(name);
        return new Proxy(db, {
          get(inner, method) {
            const member: unknown = Reflect.get(inner, method, inner);
            if (method !== "collection") return typeof member === "function" ? (member.bind(inner) as unknown) : member;
            return (collection: string, options: object) => wrapped(inner.collection(collection, options), collection);
          },
        });
      };
    },
  });
  return Object.assign(handle, { client: proxied });
}
