/** Bytes of every payload in the benchmark. */
export const PAYLOAD_BYTES = 250;

export interface Order {
  seq: number;
  orderId: string;
  currency: string;
  total: number;
  note: string;
}

/** An order event of exactly 250 bytes as JSON. */
export function order(seq: number): Order {
  const bare = { seq, orderId: `order-${seq % 1000}`, currency: "EUR", total: 100 + (seq % 900), note: "" };
  return { ...bare, note: "x".repeat(PAYLOAD_BYTES - JSON.stringify(bare).length) };
}

/** The same as an SQL expression (type json) over a bigint column. */
export function orderSql(column: string): string {
  const bare = `'{"seq":' || ${column} || ',"orderId":"order-' || ${column} % 1000 || '","currency":"EUR","total":' || 100 + ${column} % 900 || ',"note":"'`;
  return `(${bare} || repeat('x', ${PAYLOAD_BYTES - 2} - length(${bare})) || '"}')::json`;
}
