import { adminCases } from "./admin-cases.ts";
import { auditCases } from "./audit-cases.ts";
import { blockedCases } from "./blocked-cases.ts";
import { budgetCases } from "./budget-cases.ts";
import { changeCases } from "./change-cases.ts";
import { claimCases } from "./claim-cases.ts";
import { consumerCases } from "./consumer-cases.ts";
import { contentCases } from "./content-cases.ts";
import { crashCases } from "./crash-cases.ts";
import { deadGroupCases } from "./dead-group-cases.ts";
import { deadLetterCases } from "./dead-letter-cases.ts";
import { doctorCases } from "./doctor-cases.ts";
import { editCases } from "./edit-cases.ts";
import { endedTransactionCases } from "./ended-transaction-cases.ts";
import { figuresCases } from "./figures-cases.ts";
import { historyCases } from "./history-cases.ts";
import { leaseCases } from "./lease-cases.ts";
import { laneCases } from "./lane-cases.ts";
import { ledgerCases } from "./ledger-cases.ts";
import { parkingCases } from "./parking-cases.ts";
import { relayCases } from "./relay-cases.ts";
import { restoreCases } from "./restore-cases.ts";
import { scheduleCases } from "./schedule-cases.ts";
import { sampleCases } from "./sample-cases.ts";
import { searchCases } from "./search-cases.ts";
import { sharingCases } from "./sharing-cases.ts";
import { statusCases } from "./status-cases.ts";
import type { StoreCase } from "./store-context.ts";
import { upkeepCases } from "./upkeep-cases.ts";
import { waitingCases } from "./waiting-cases.ts";
import { windowCases } from "./window-cases.ts";
import { writerCases } from "./writer-cases.ts";

/** What every store must do, as data; see docs/writing-an-adapter.md. */
export const storeConformance: readonly StoreCase[] = [
  ...writerCases,
  ...endedTransactionCases,
  ...contentCases,
  ...scheduleCases,
  ...windowCases,
  ...claimCases,
  ...parkingCases,
  ...budgetCases,
  ...deadLetterCases,
  ...deadGroupCases,
  ...editCases,
  ...changeCases,
  ...adminCases,
  ...leaseCases,
  ...crashCases,
  ...laneCases,
  ...sharingCases,
  ...relayCases,
  ...statusCases,
  ...figuresCases,
  ...blockedCases,
  ...sampleCases,
  ...searchCases,
  ...waitingCases,
  ...consumerCases,
  ...auditCases,
  ...doctorCases,
  ...ledgerCases,
  ...upkeepCases,
  ...restoreCases,
  ...historyCases,
];
