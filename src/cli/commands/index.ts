import type { Command } from "../command.ts";
import { adminCommand } from "./admin.ts";
import { auditCommand } from "./audit.ts";
import { blockedCommand } from "./blocked.ts";
import { changesCommand } from "./changes.ts";
import { contractsCommand } from "./contracts.ts";
import { deadCommand } from "./dead.ts";
import { demoCommand } from "./demo.ts";
import { doctorCommand } from "./doctor.ts";
import { exporterCommand } from "./exporter.ts";
import { findCommand } from "./find.ts";
import { grantsCommand } from "./grants.ts";
import { maintainCommand } from "./maintain.ts";
import { migrateCommand } from "./migrate.ts";
import { rebaseCommand } from "./rebase.ts";
import { reconcileCommand } from "./reconcile.ts";
import { relayCommand } from "./relay.ts";
import { relaysCommand } from "./relays.ts";
import { replayCommand } from "./replay.ts";
import { statusCommand } from "./status.ts";
import { storyCommand } from "./story.ts";
import { walCommand } from "./wal.ts";

/** In the order of the help text. */
export const COMMANDS: readonly Command[] = [
  demoCommand,
  migrateCommand,
  relayCommand,
  adminCommand,
  statusCommand,
  findCommand,
  storyCommand,
  blockedCommand,
  exporterCommand,
  deadCommand,
  relaysCommand,
  changesCommand,
  auditCommand,
  doctorCommand,
  maintainCommand,
  replayCommand,
  reconcileCommand,
  walCommand,
  contractsCommand,
  rebaseCommand,
  grantsCommand,
];
