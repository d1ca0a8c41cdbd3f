import { stopSignal } from "../../../../src/cli/stop-signal.ts";

const signal = stopSignal();
signal.addEventListener("abort", () => process.stdout.write(`stopping by ${String(signal.reason)}\n`));
process.stdout.write("ready\n");
setTimeout(() => process.exit(7), 20_000);
