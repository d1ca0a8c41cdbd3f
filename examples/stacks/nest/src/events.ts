export interface Events {
  order_created: { orderId: string; total: number };
}
