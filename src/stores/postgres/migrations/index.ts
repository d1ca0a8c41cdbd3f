import { init } from "./0001-init.ts";
import { deadLetterIndexes } from "./0005-dead-letter-indexes.ts";
import type { Migration } from "./migration.ts";

/** In the order in which they are applied. They are code, so that a bundle carries them. */
export const MIGRATIONS: readonly Migration[] = [init, deadLetterIndexes];
