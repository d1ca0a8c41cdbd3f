import { Body, Controller, Get, Post } from "@nestjs/common";
import { Pool } from "pg";
import { TxboxHealth, TxboxOutbox } from "txbox/nestjs";
import type { Events } from "./events.js";

@Controller()
export class OrdersController {
  constructor(
    private readonly pool: Pool,
    private readonly outbox: TxboxOutbox<Events>,
    private readonly health: TxboxHealth,
  ) {}

  @Post("orders")
  async place(@Body() { orderId, total }: { orderId: string; total: number }): Promise<{ orderId: string }> {
    const tx = await this.pool.connect();
    try {
      await tx.query("begin");
      await tx.query("insert into orders values ($1, $2)", [orderId, total]);
      await this.outbox.enqueue(tx, {
        stream: "orders",
        type: "order_created",
        key: orderId,
        payload: { orderId, total },
      });
      await tx.query("commit");
    } catch (error) {
      await tx.query("rollback");
      throw error;
    } finally {
      tx.release();
    }
    return { orderId };
  }

  @Get("payments")
  async payments(): Promise<unknown[]> {
    return (await this.pool.query("select order_id, amount from payments order by order_id")).rows;
  }

  @Get("readyz")
  ready(): Promise<object> {
    return this.health.isHealthy("messages");
  }
}
