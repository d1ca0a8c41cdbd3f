import { types } from "node:util";
import { describeError, TxboxError } from "./errors.ts";
import { valueKind } from "./value-kind.ts";

/** Well before JSON.stringify or the database run out of stack. */
const MAX_DEPTH = 1000;

/**
 * JSON text of a value. JSON.stringify alone silently changes what JSON cannot hold: NaN becomes null, a Map becomes {}, a
 * function is left out. Here each of these is refused with the path to it. Throws `invalid_message`.
 */
export function toJson(value: unknown, field: string): string {
  const walk = new Walk(field);
  try {
    return JSON.stringify(value, function (this: object, name: string, inner: unknown) {
      walk.enter(this, name, inner);
      return inner;
    });
  } catch (error) {
    if (error instanceof TxboxError) throw error;
    const path = throwingPart(value, field, new Set()) ?? field;
    throw notJson(field, `${path} cannot be made into JSON: ${describeError(error)}`, error);
  }
}

/** An object whose JSON is its properties, not that of a class with more behind them. */
export function isPlainObject(value: object): boolean {
  const prototype = Object.getPrototypeOf(value) as object | null;
  // The second is Object.prototype, perhaps that of another realm.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Follows JSON.stringify through a value and refuses what it would change. */
class Walk {
  readonly #field: string;
  /** From the outermost object to the one whose properties are being written, with the name of each in the one before. */
  readonly #holders: object[] = [];
  readonly #names: string[] = [];

  constructor(field: string) {
    this.#field = field;
  }

  /** `value` is what toJSON gave, where there is one. */
  enter(holder: object, name: string, value: unknown): void {
    while (this.#holders.length > 0 && this.#holders.at(-1) !== holder) {
      this.#holders.pop();
      this.#names.pop();
    }
    // JSON.stringify begins with an object of its own, which holds the value.
    if (this.#holders.length === 0) this.#holders.push(holder);
    const reason = this.#whyNot(holder, name, value);
    if (reason !== undefined) throw notJson(this.#field, `${this.#path(name)} ${reason}`);
    if (typeof value !== "object" || value === null) return;
    this.#holders.push(value);
    this.#names.push(name);
  }

  #whyNot(holder: object, name: string, value: unknown): string | undefined {
    switch (typeof value) {
      case "number":
        return Number.isFinite(value) ? undefined : `is ${value}, which JSON turns into null`;
      case "function":
      case "symbol":
        return `is ${valueKind(value)}`;
      case "bigint":
        return "is a bigint";
      case "undefined":
        return this.#whyNotUndefined(holder, name);
      case "object":
        if (value === null) return isInvalidDate(Reflect.get(holder, name)) ? "is an invalid date" : undefined;
        return this.#holders.includes(value)
          ? "refers back to an object that contains it (a cycle)"
          : this.#deep(value);
      default:
        return undefined;
    }
  }

  /** Optional properties are often undefined, and JSON leaves them out. An item of an array would become null. */
  #whyNotUndefined(holder: object, name: string): string | undefined {
    if (Reflect.get(holder, name) !== undefined) return "has a toJSON() that gives undefined";
    return Array.isArray(holder) || this.#names.length === 0 ? "is undefined" : undefined;
  }

  #deep(value: object): string | undefined {
    if (this.#holders.length > MAX_DEPTH) return `is nested deeper than ${MAX_DEPTH} levels`;
    return whyNotObject(value);
  }

  #path(name: string): string {
    if (this.#names.length === 0) return this.#field;
    const holders = this.#holders.slice(1);
    const names = [...this.#names.slice(1), name];
    const path = names.reduce((before, one, i) => pathOf(before, holders[i]!, one), this.#field);
    return path.length > 200 ? `${path.slice(0, 200)}…` : path;
  }
}

function whyNotObject(value: object): string | undefined {
  if (Array.isArray(value)) {
    const names = Object.keys(value);
    // Missing items are met as undefined ones.
    const extra = names.length === value.length ? undefined : names.find((name) => !/^\d+$/.test(name));
    return extra === undefined ? undefined : `is an array with the property "${extra}", which JSON leaves out`;
  }
  const symbol = Object.getOwnPropertySymbols(value).find((one) =>
    Object.prototype.propertyIsEnumerable.call(value, one),
  );
  if (symbol !== undefined) return `has the property ${String(symbol)}, which JSON leaves out`;
  if (isPlainObject(value)) return undefined;
  if (types.isBoxedPrimitive(value)) {
    const inner: unknown = value.valueOf();
    if (typeof inner === "symbol") return `is ${valueKind(inner)}`;
    if (typeof inner === "bigint") return "is a bigint";
    return typeof inner === "number" && !Number.isFinite(inner) ? `is ${inner}, which JSON turns into null` : undefined;
  }
  const kind = valueKind(value);
  // What comes with the language or the platform keeps its content where JSON does not see it.
  if (Object.prototype.toString.call(value) !== "[object Object]") return `is ${kind}, which JSON empties or changes`;
  if (Object.keys(value).length === 0) return `is ${kind} without properties that JSON sees`;
  const getter = getterOf(Object.getPrototypeOf(value) as object);
  return getter === undefined ? undefined : `is ${kind}, whose "${getter}" JSON leaves out`;
}

const getters = new WeakMap<object, string | null>();

/** A property that instances have by their class: it is seen by code and not by JSON. */
function getterOf(prototype: object): string | undefined {
  const known = getters.get(prototype);
  if (known !== undefined) return known ?? undefined;
  const above = Object.getPrototypeOf(prototype) as object | null;
  // Object.prototype has one of its own.
  if (above === null) return undefined;
  const all = Object.entries(Object.getOwnPropertyDescriptors(prototype));
  const found = all.find(([, property]) => "get" in property && property.get !== undefined)?.[0] ?? getterOf(above);
  getters.set(prototype, found ?? null);
  return found;
}

function isInvalidDate(value: unknown): boolean {
  return types.isDate(value) && Number.isNaN(Date.prototype.getTime.call(value));
}

/** The part that throws when it is read or asked for its JSON. */
function throwingPart(value: unknown, path: string, seen: Set<object>): string | undefined {
  if (typeof value !== "object" || value === null || seen.has(value) || seen.size >= MAX_DEPTH) return undefined;
  seen.add(value);
  try {
    if ("toJSON" in value && typeof value.toJSON === "function") {
      value.toJSON("");
      return undefined;
    }
    for (const name of Object.keys(value)) {
      const inner = pathOf(path, value, name);
      const found = throwingPart(readOr(value, name, THROWS), inner, seen);
      if (found !== undefined || readOr(value, name, THROWS) === THROWS) return found ?? inner;
    }
    return undefined;
  } catch {
    return path;
  }
}

const THROWS = Symbol("throws");

function readOr(holder: object, name: string, otherwise: unknown): unknown {
  try {
    return Reflect.get(holder, name);
  } catch {
    return otherwise;
  }
}

function pathOf(before: string, holder: object, name: string): string {
  if (Array.isArray(holder)) return `${before}[${name}]`;
  return /^[\w$]+$/.test(name) ? `${before}.${name}` : `${before}[${JSON.stringify(name)}]`;
}

function notJson(field: string, message: string, cause?: unknown): TxboxError {
  const fix = "Give values that JSON can hold, a toJSON() where a class has more, or a Uint8Array as the whole payload";
  return new TxboxError("invalid_message", message, { field, fix, cause });
}
