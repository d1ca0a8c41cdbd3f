export { createInProcessBus } from "./in-process-bus.ts";
export type { InProcessBus, InProcessBusOptions } from "./in-process-bus.ts";
