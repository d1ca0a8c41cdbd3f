/** `--aggregate [TYPE:]ID`, taken apart at its first colon. */
export function aggregateOf(text: string): { aggregateType?: string; aggregateId: string } {
  const colon = text.indexOf(":");
  return colon === -1
    ? { aggregateId: text }
    : { aggregateType: text.slice(0, colon), aggregateId: text.slice(colon + 1) };
}
