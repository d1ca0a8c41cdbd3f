/** What the order service sends, in the stream "orders". */
export type OrderEvents = {
  order_created: { order_id: string; customer_id: string; total_amount: number };
};

/** What the payment service sends, in the stream "payments". */
export type PaymentEvents = {
  payment_completed: { order_id: string; payment_id: string; amount: number };
};
