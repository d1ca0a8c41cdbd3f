/** Foreign messages may carry anything: what an index or a text column cannot hold is left out. */
export function textOrNull(value: unknown, maxBytes = 1024): string | null {
  if (typeof value !== "string" || value === "" || value.includes("\0") || !value.isWellFormed()) return null;
  return Buffer.byteLength(value) > maxBytes ? null : value;
}
