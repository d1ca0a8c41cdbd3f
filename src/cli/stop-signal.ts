/** One Ctrl-C may arrive twice: from the terminal, and passed on by npx. */
const SAME_MS = 200;

/** Aborts on the first SIGTERM or SIGINT; a second one ends the process at once. */
export function stopSignal(): AbortSignal {
  const controller = new AbortController();
  let asked = 0;
  for (const [name, exitCode] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const) {
    process.on(name, () => {
      if (!controller.signal.aborted) {
        asked = performance.now();
        controller.abort(name);
      } else if (performance.now() - asked > SAME_MS) {
        process.exit(exitCode);
      }
    });
  }
  return controller.signal;
}
