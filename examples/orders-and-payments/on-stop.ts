const steps: (() => unknown)[] = [];
let stopping = false;

/** Done on SIGTERM and Ctrl-C, the last one first; the process then ends. */
export function onStop(step: () => unknown): void {
  steps.unshift(step);
}

async function stop(): Promise<void> {
  if (stopping) return;
  stopping = true;
  for (const step of steps) {
    try {
      await step();
    } catch (error) {
      console.error("while stopping:", error);
    }
  }
  process.exit(0);
}

process.on("SIGTERM", () => void stop());
process.on("SIGINT", () => void stop());
