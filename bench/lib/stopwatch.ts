export interface Elapsed {
  ms: number;
  /** CPU time of this process meanwhile, user and system. */
  cpuMs: number;
}

export function stopwatch(): () => Elapsed {
  const started = performance.now();
  const cpu = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(cpu);
    return { ms: performance.now() - started, cpuMs: (user + system) / 1000 };
  };
}
