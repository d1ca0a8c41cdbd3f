/** Aborts on the first SIGTERM or SIGINT; a second one ends the process at once. */
export function stopSignal(): AbortSignal {
  const controller = new AbortController();
  for (const [name, exitCode] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(exitCode);
      controller.abort(name);
    });
  }
  return controller.signal;
}
