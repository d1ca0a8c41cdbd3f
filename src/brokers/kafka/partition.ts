/** Murmur2 as Kafka's Java client has it, so that every producer sends a key to the same partition. */
function murmur2(bytes: Uint8Array): number {
  const { length } = bytes;
  const whole = length & ~3;
  let h = 0x9747b28c ^ length;
  for (let i = 0; i < whole; i += 4) {
    let k = bytes[i]! | (bytes[i + 1]! << 8) | (bytes[i + 2]! << 16) | (bytes[i + 3]! << 24);
    k = Math.imul(k, 0x5bd1e995);
    k ^= k >>> 24;
    h = Math.imul(h, 0x5bd1e995) ^ Math.imul(k, 0x5bd1e995);
  }
  const rest = length & 3;
  if (rest === 3) h ^= bytes[whole + 2]! << 16;
  if (rest >= 2) h ^= bytes[whole + 1]! << 8;
  if (rest >= 1) h = Math.imul(h ^ bytes[whole]!, 0x5bd1e995);
  h = Math.imul(h ^ (h >>> 13), 0x5bd1e995);
  return h ^ (h >>> 15);
}

/** The partition of a key among `count`. */
export function partitionOf(key: Uint8Array, count: number): number {
  return (murmur2(key) & 0x7fffffff) % count;
}
