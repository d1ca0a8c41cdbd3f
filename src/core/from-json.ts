/**
 * What JSON gives back of a payload: a Date arrives as a string, and so does everything else with a `toJSON`. What
 * JSON keeps as it is has the same type. A payload of bytes is no JSON.
 */
export type FromJson<T> = 0 extends 1 & T ? T : T extends Uint8Array ? T : Parsed<T>;

type Parsed<T> = T extends Json
  ? T
  : T extends { toJSON(...given: never): infer Json }
    ? Parsed<Json>
    : T extends (...given: never) => unknown
      ? never
      : T extends readonly unknown[]
        ? { [Index in keyof T]: Parsed<T[Index]> }
        : T extends object
          ? { [Name in keyof T as T[Name] extends Hidden ? never : Name]: Parsed<T[Name]> }
          : T;

/** Also ends the recursion of types that refer to themselves. */
type Json = string | number | boolean | null | undefined | readonly Json[] | { readonly [name: string]: Json };
type Hidden = symbol | ((...given: never) => unknown);
