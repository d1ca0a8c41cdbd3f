import { eventEmitter } from "../../core/channels.ts";
import type { Maintenance } from "../../core/contracts.ts";
import { describeError } from "../../core/errors.ts";
import type { MaintenanceEvent } from "../../core/events.ts";

export function toldMaintenance(store: string, maintenance: Maintenance): Maintenance {
  const emit = eventEmitter<MaintenanceEvent>("maintenance");
  return {
    async run(options) {
      const startedAt = performance.now();
      try {
        const report = await maintenance.run(options);
        emit({ type: "done", store, report, ms: performance.now() - startedAt });
        return report;
      } catch (error) {
        emit({ type: "failed", store, error: describeError(error), ms: performance.now() - startedAt });
        throw error;
      }
    },
  };
}
