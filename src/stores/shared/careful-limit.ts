/** From this many deaths on, the owner is careful. */
const CAREFUL_FROM = 2;
/** After so many messages that went well it is as healthy as any other. */
export const TRUSTED_AFTER = 336;

/**
 * How many messages a careful owner takes at a time, after `tried` went well: single ones, so that the one that kills is
 * known, then ever more, so that many deaths of other causes do not make it slow. Undefined: as many as ever.
 */
export function carefulLimit(crashes: number, tried: number): number | undefined {
  if (crashes < CAREFUL_FROM || tried >= TRUSTED_AFTER) return undefined;
  if (tried < 16) return 1;
  return tried < 80 ? 64 : 256;
}
