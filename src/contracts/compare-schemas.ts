import { isDeepStrictEqual } from "node:util";
import { enumValues, typesOf, valueFits } from "./schema-values.ts";

/** Why a value of one schema may not fit another. */
export interface Misfit {
  /** From the payload to the part. */
  readonly path: string;
  readonly kind: "type" | "value" | "required" | "removed" | "unknown" | "limit" | "absent";
  /** What is too much or missing: a type, a value, a keyword, a field. `absent` is a field that need not be there. */
  readonly what: string;
  /** Another variant of a union altogether. */
  readonly far?: true;
}

/** A schema and the document that its pointers lead into. */
export interface Located {
  readonly schema: unknown;
  readonly document: unknown;
}

type Keywords = Readonly<Record<string, unknown>>;

/**
 * Every reason why what fits `given` may not fit `wanted`; none but absent fields: all of it fits. What a schema does not
 * mention counts as not written. What cannot be told is a reason as well.
 */
export function misfits(given: Located, wanted: Located): Misfit[] {
  return new Comparison(given.document, wanted.document).compare(given.schema, wanted.schema, "payload");
}

/** Compared by their own rules below; annotations say nothing of values. */
const KNOWN: ReadonlySet<string> = new Set([
  ..."type enum const properties required additionalProperties items additionalItems anyOf oneOf allOf $ref".split(" "),
  ..."minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems".split(" "),
  ..."minProperties maxProperties multipleOf definitions $defs $schema $id $comment title description".split(" "),
  ..."default examples deprecated readOnly writeOnly".split(" "),
]);

/** Pointers followed within each other. */
const MAX_DEPTH = 200;

const LOWER = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const UPPER = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];

class Comparison {
  readonly #givenDocument: unknown;
  readonly #wantedDocument: unknown;
  /** Pairs of pointers that are being compared: schemas may refer to themselves. */
  readonly #under = new Set<string>();
  #depth = 0;

  constructor(givenDocument: unknown, wantedDocument: unknown) {
    this.#givenDocument = givenDocument;
    this.#wantedDocument = wantedDocument;
  }

  compare(given: unknown, wanted: unknown, path: string): Misfit[] {
    if (wanted === true || wanted === undefined || given === false) return [];
    if (wanted === false) return [{ path, kind: "unknown", what: path }];
    const left = asKeywords(given);
    const right = asKeywords(wanted);
    if (left["$ref"] === undefined && right["$ref"] === undefined) return this.#compareParts(left, right, path);
    if (this.#depth > MAX_DEPTH) return [{ path, kind: "limit", what: "what refers to itself" }];
    const pair = `${String(left["$ref"])} ${String(right["$ref"])}`;
    const both = left["$ref"] !== undefined && right["$ref"] !== undefined;
    if (both && this.#under.has(pair)) return [];
    if (both) this.#under.add(pair);
    this.#depth++;
    try {
      return this.compare(resolve(left, this.#givenDocument), resolve(right, this.#wantedDocument), path);
    } finally {
      this.#depth--;
      if (both) this.#under.delete(pair);
    }
  }

  #compareParts(given: Keywords, wanted: Keywords, path: string): Misfit[] {
    const choices = choicesOf(given);
    if (choices !== undefined) return unique(choices.flatMap((one) => this.compare(one, wanted, path)));
    if (Array.isArray(given["allOf"])) return this.compare(this.#merged(given), wanted, path);
    const { allOf, anyOf, oneOf, ...rest } = wanted;
    const all = Array.isArray(allOf) ? allOf.flatMap((one) => this.compare(given, one, path)) : [];
    const any = [anyOf, oneOf].filter((one) => Array.isArray(one)).flatMap((one) => this.#any(given, one, path));
    return unique([...all, ...any, ...this.#compareKeywords(given, rest, path)]);
  }

  /** Each type and each value has to fit one of them; of what fits none, the nearest says why. */
  #any(given: Keywords, wanted: readonly unknown[], path: string): Misfit[] {
    return unique(
      piecesOf(given).flatMap((piece) => {
        const tried = wanted.map((one) => this.compare(piece, one, path));
        return tried.reduce((best, one) => (weight(one, path) < weight(best, path) ? one : best), tried[0] ?? []);
      }),
    );
  }

  #compareKeywords(given: Keywords, wanted: Keywords, path: string): Misfit[] {
    const values = enumValues(given);
    const allowed = enumValues(wanted);
    const found: Misfit[] = [];
    const givenTypes = typesOf(given);
    const wantedTypes = typesOf(wanted);
    const isAllowed = (type: string): boolean =>
      wantedTypes.includes(type) || (type === "integer" && wantedTypes.includes("number"));
    const extra = givenTypes.filter((type) => !isAllowed(type));
    for (const type of extra) found.push({ path, kind: "type", what: type });
    const shared = givenTypes.filter(isAllowed);
    if (shared.length === 0) return found;
    if (allowed !== undefined) {
      const far = "const" in wanted && values?.length === 1 ? { far: true as const } : {};
      const strange = values?.filter((value) => !allowed.some((one) => isDeepStrictEqual(one, value)));
      if (strange === undefined) found.push({ path, kind: "value", what: "any value" });
      // What is of another type was named already.
      else {
        for (const value of strange) {
          if (typesOf({ const: value }).some(isAllowed))
            found.push({ path, kind: "value", what: JSON.stringify(value), ...far });
        }
      }
    }
    if (values === undefined) found.push(...this.#limits(given, wanted, shared, path));
    else
      for (const value of values)
        if (!valueFits(value, wanted)) found.push({ path, kind: "value", what: JSON.stringify(value) });
    if (shared.includes("object")) found.push(...this.#objects(given, wanted, path));
    if (shared.includes("array")) found.push(...this.#arrays(given, wanted, path));
    return found;
  }

  #limits(given: Keywords, wanted: Keywords, shared: readonly string[], path: string): Misfit[] {
    const broken = Object.keys(wanted).filter((name) => {
      const limit = wanted[name];
      const own = given[name];
      if (isDeepStrictEqual(limit, own) || !concerns(name, shared)) return false;
      if (LOWER.includes(name)) return !(typeof own === "number" && own >= Number(limit));
      if (UPPER.includes(name)) return !(typeof own === "number" && own <= Number(limit));
      if (name === "multipleOf") return !(typeof own === "number" && Number.isInteger(own / Number(limit)));
      return !KNOWN.has(name);
    });
    return broken.map((name) => ({ path, kind: "limit", what: `${name} ${JSON.stringify(wanted[name])}` }));
  }

  #objects(given: Keywords, wanted: Keywords, path: string): Misfit[] {
    const found: Misfit[] = [];
    const own = asKeywords(given["properties"] ?? {});
    const known = asKeywords(wanted["properties"] ?? {});
    const required = asList(given["required"]);
    const more = asSchema(given["additionalProperties"]);
    const needed = asList(wanted["required"]).map(String);
    for (const name of needed) {
      if (required.includes(name)) continue;
      const kind = Object.hasOwn(own, name) || more !== undefined ? "required" : "removed";
      found.push({ path: `${path}.${name}`, kind, what: name });
    }
    for (const name of Object.keys(known)) {
      if (Object.hasOwn(own, name) || more !== undefined || needed.includes(name)) continue;
      found.push({ path: `${path}.${name}`, kind: "absent", what: name });
    }
    const others = wanted["additionalProperties"] ?? true;
    for (const [name, schema] of Object.entries(own)) {
      found.push(...this.compare(schema, Object.hasOwn(known, name) ? known[name] : others, `${path}.${name}`));
    }
    if (more === undefined) return found;
    for (const [name, schema] of Object.entries(known)) {
      if (!Object.hasOwn(own, name)) found.push(...this.compare(more, schema, `${path}.${name}`));
    }
    return [...found, ...this.compare(more, others, `${path}.*`)];
  }

  #arrays(given: Keywords, wanted: Keywords, path: string): Misfit[] {
    const own = itemsOf(given);
    const known = itemsOf(wanted);
    const places = Math.max(own.first.length, known.first.length);
    const found: Misfit[] = [];
    for (let i = 0; i < places; i++) {
      if (i >= own.first.length && own.rest === undefined) break;
      found.push(...this.compare(own.first[i] ?? own.rest, known.first[i] ?? known.rest ?? true, `${path}[${i}]`));
    }
    return own.rest === undefined ? found : [...found, ...this.compare(own.rest, known.rest ?? true, `${path}[]`)];
  }

  /** What fits all of its parts, as one schema. */
  #merged({ allOf, ...rest }: Keywords): Keywords {
    const parts = asList(allOf).map((part) => resolve(asKeywords(part), this.#givenDocument));
    return parts.map(asKeywords).reduce<Keywords>((before, part) => {
      const properties = { ...asKeywords(before["properties"] ?? {}) };
      for (const [name, schema] of Object.entries(asKeywords(part["properties"] ?? {}))) {
        properties[name] = Object.hasOwn(properties, name) ? { allOf: [properties[name], schema] } : schema;
      }
      const required = [...new Set([...asList(before["required"]), ...asList(part["required"])])];
      return { ...before, ...part, ...(Object.keys(properties).length > 0 ? { properties } : {}), required };
    }, rest);
  }
}

/** Which of the keyword's types are among those: a limit of texts says nothing of numbers. */
function concerns(name: string, types: readonly string[]): boolean {
  const of = { Length: "string", pattern: "string", format: "string", Items: "array", Properties: "object" };
  const type = Object.entries(of).find(([part]) => name.endsWith(part))?.[1];
  if (type !== undefined) return types.includes(type);
  return /imum$|^multipleOf$/.test(name) ? types.includes("number") || types.includes("integer") : true;
}

function choicesOf({ anyOf, oneOf, ...rest }: Keywords): readonly unknown[] | undefined {
  const choices = Array.isArray(anyOf) ? anyOf : oneOf;
  if (!Array.isArray(choices)) return undefined;
  return Object.keys(rest).length === 0 ? choices : choices.map((one: unknown) => ({ allOf: [rest, one] }));
}

function piecesOf(schema: Keywords): Keywords[] {
  const values = enumValues(schema);
  if (values !== undefined) return values.map((value) => ({ const: value }));
  const types = schema["type"];
  return Array.isArray(types) ? types.map((type: unknown) => ({ ...schema, type })) : [schema];
}

/** Fewer reasons are nearer; another type, or another of the values that tell variants apart, is far. */
function weight(found: readonly Misfit[], at: string): number {
  return found.reduce((sum, { kind, path, far }) => {
    if (far === true || (kind === "type" && path === at)) return sum + 100;
    return kind === "absent" ? sum : sum + 1;
  }, 0);
}

function resolve(schema: Keywords, document: unknown): unknown {
  const { $ref: ref } = schema;
  if (typeof ref !== "string") return schema;
  if (!ref.startsWith("#")) return {};
  const names = ref.slice(1).split("/").slice(1);
  return names.reduce<unknown>((parent, name) => {
    const key = decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~");
    return typeof parent === "object" && parent !== null ? (parent as Keywords)[key] : undefined;
  }, document);
}

function itemsOf(schema: Keywords): { first: readonly unknown[]; rest: unknown } {
  const { items, additionalItems } = schema;
  return Array.isArray(items)
    ? { first: items, rest: additionalItems === false ? undefined : asSchema(additionalItems) }
    : { first: [], rest: items };
}

/** Undefined for what is open to anything, or to nothing more. */
function asSchema(value: unknown): unknown {
  return typeof value === "object" && value !== null ? value : undefined;
}

function asKeywords(value: unknown): Keywords {
  return typeof value === "object" && value !== null ? (value as Keywords) : {};
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function unique(found: readonly Misfit[]): Misfit[] {
  return [...new Map(found.map((one) => [`${one.path} ${one.kind} ${one.what}`, one])).values()];
}
