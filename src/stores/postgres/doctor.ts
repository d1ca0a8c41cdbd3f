import type { HealthCheck } from "../../core/contracts.ts";
import { DoctorContext, type DoctorOptions } from "./doctor-context.ts";
import { logChecks } from "./doctor-log.ts";
import { serverChecks } from "./doctor-server.ts";
import { sessionChecks } from "./doctor-session.ts";

/** What can be wrong with PostgreSQL: the server, this role and its connections, the tables of txbox. */
export function postgresChecks(options: DoctorOptions): readonly HealthCheck[] {
  const context = new DoctorContext(options);
  return [...serverChecks(context), ...sessionChecks(context), ...logChecks(context)];
}
