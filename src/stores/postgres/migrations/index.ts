import { init } from "./0001-init.ts";
import { fenceToken } from "./0002-fence-token.ts";
import { cheaperInsert } from "./0003-cheaper-insert.ts";
import { oneLookUpIndex } from "./0004-one-look-up-index.ts";
import { deadLetterIndexes } from "./0005-dead-letter-indexes.ts";
import { newsByIndex } from "./0006-news-by-index.ts";
import { whatARoleMayWrite } from "./0007-what-a-role-may-write.ts";
import { knownWrites } from "./0008-known-writes.ts";
import { samplesAndArchive } from "./0009-samples-and-archive.ts";
import { groupsEditsChanges } from "./0010-groups-edits-changes.ts";
import { walSource } from "./0011-wal-source.ts";
import { enqueueFromSql } from "./0012-enqueue-from-sql.ts";
import { whatAProcessCanHold } from "./0013-what-a-process-can-hold.ts";
import { lookUpsByPlace } from "./0014-look-ups-by-place.ts";
import { deathsByMessage } from "./0015-deaths-by-message.ts";
import type { Migration } from "./migration.ts";

/** In the order in which they are applied. They are code, so that a bundle carries them. */
export const MIGRATIONS: readonly Migration[] = [
  init,
  fenceToken,
  cheaperInsert,
  oneLookUpIndex,
  deadLetterIndexes,
  newsByIndex,
  whatARoleMayWrite,
  knownWrites,
  samplesAndArchive,
  groupsEditsChanges,
  walSource,
  enqueueFromSql,
  whatAProcessCanHold,
  lookUpsByPlace,
  deathsByMessage,
];
