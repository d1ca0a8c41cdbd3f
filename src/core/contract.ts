import type { SchemaInput, SchemaOutput, StandardSchema } from "./standard-schema.ts";

declare const contract: unique symbol;

/** What an event map has in the place of a payload type when the type was defined with a schema. At run time it is nothing. */
export interface Contract<Stream extends string = string, Input = unknown, Output = unknown> {
  readonly [contract]: { readonly stream: Stream; readonly input: Input; readonly output: Output };
}

/** A step from the payload of one version to that of the next. A method's parameter may be narrower than `unknown`. */
type Upcast = { step(old: unknown): unknown }["step"];

/** What is agreed about a message type. */
export interface EventDefinition {
  /** The stream of all its messages. */
  readonly stream: string;
  /** Checks a payload in the form that JSON gives it: zod, valibot, arktype or any other Standard Schema. */
  readonly schema: StandardSchema;
  /** Of the payload, as a whole number. Raise it with a change that breaks. Default 1. */
  readonly version?: number;
  /** By version: makes a payload of that version into one of the next. One for each version before the present one. */
  readonly upcast?: Readonly<Record<number, Upcast>>;
}

/** The event map of definitions. */
export type ContractsOf<Definitions extends Readonly<Record<string, EventDefinition>>> = {
  readonly [Type in keyof Definitions & string]: Contract<
    Definitions[Type]["stream"],
    SchemaInput<Definitions[Type]["schema"]>,
    SchemaOutput<Definitions[Type]["schema"]>
  >;
};
