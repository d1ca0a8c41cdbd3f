/** Keys hash to this many lanes; a lane has one owner at a time. Part of the stored format: never change it. */
export const LANES = 64;

let turn = 0;

/** FNV-1a over UTF-16 code units, mixed once more so that the low bits depend on every character. */
export function laneOf(key: string | null): number {
  if (key === null) return turn++ & (LANES - 1);
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193);
  hash ^= hash >>> 16;
  hash = Math.imul(hash, 0x85ebca6b);
  hash ^= hash >>> 13;
  return hash & (LANES - 1);
}
