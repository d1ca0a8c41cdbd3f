import { errorCode, TxboxError } from "../../../core/errors.ts";
import { valueKind } from "../../../core/value-kind.ts";
import { hasMethods, notATransaction } from "../drivers/driver.ts";
import type { PgPool } from "../drivers/node-postgres.ts";
import type { PostgresBridge } from "./bridge.ts";
import { requirePool } from "./require-pool.ts";

/** Prisma 7 with `@prisma/adapter-pg`: `new PrismaClient({ adapter: new PrismaPg(pool) })`, extended or not. */
export interface PrismaDatabase<Tx> {
  $transaction(run: (tx: Tx) => Promise<unknown>, options?: { maxWait?: number; timeout?: number }): Promise<unknown>;
}

interface RawQueries {
  $queryRawUnsafe(text: string, ...values: unknown[]): Promise<object[]>;
  $executeRawUnsafe(text: string, ...values: unknown[]): Promise<number>;
}

/** Prisma would end a transaction after five seconds; how long a handler may take is for the inbox to say. */
const NO_LIMIT_MS = 2 ** 31 - 1;
/** "Transaction API error": closed, timed out, unknown. */
const CLOSED = "P2028";

/** `enqueue` takes the `tx` of `prisma.$transaction(async (tx) => …)`, and handlers get one. `pool` is that of the adapter. */
export function fromPrisma<Tx extends object>(prisma: PrismaDatabase<Tx>, pool: PgPool): PostgresBridge<Tx> {
  if (!isPrisma(prisma) || !hasMethods(prisma, "$connect")) {
    throw new TxboxError("invalid_option", `fromPrisma needs a PrismaClient, got ${valueKind(prisma)}`, {
      field: "prisma",
      fix: "Pass new PrismaClient({ adapter: new PrismaPg(pool) })",
    });
  }
  const options = { maxWait: NO_LIMIT_MS, timeout: NO_LIMIT_MS };
  return {
    library: "Prisma",
    client: requirePool("fromPrisma(prisma, pool)", "new PrismaPg(pool)", pool),
    transaction: <T>(run: (tx: Tx) => Promise<T>) => prisma.$transaction(run, options) as Promise<T>,
    statementsOf(value) {
      if (!isPrisma(value)) return undefined;
      if (hasMethods(value, "$connect")) {
        throw notATransaction("the PrismaClient", "Pass the `tx` of prisma.$transaction(async (tx) => …)");
      }
      return {
        rows: (text, params) => explained(value.$queryRawUnsafe(text, ...params)),
        count: (text, params) => explained(value.$executeRawUnsafe(text, ...params)),
      };
    },
  };
}

function isPrisma(value: unknown): value is RawQueries {
  return typeof value === "object" && value !== null && hasMethods(value, "$queryRawUnsafe", "$executeRawUnsafe");
}

async function explained<T>(running: Promise<T>): Promise<T> {
  try {
    return await running;
  } catch (error) {
    if (errorCode(error) === CLOSED) {
      throw notATransaction("a Prisma transaction that has ended", "Await enqueue inside prisma.$transaction(…)");
    }
    throw serverErrorOf(error) ?? error;
  }
}

interface KnownRequestError {
  readonly meta?: { readonly driverAdapterError?: { readonly cause?: ServerError } };
}

interface ServerError {
  readonly originalCode?: string;
  readonly originalMessage?: string;
}

/** What the server said, which Prisma keeps inside of what it says. */
function serverErrorOf(error: unknown): Error | undefined {
  const { originalCode: code, originalMessage } = (error as KnownRequestError)?.meta?.driverAdapterError?.cause ?? {};
  if (code === undefined) return undefined;
  return Object.assign(new Error(originalMessage, { cause: error }), { code });
}
