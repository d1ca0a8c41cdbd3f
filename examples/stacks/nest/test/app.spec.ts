import type { INestApplication } from "@nestjs/common";
import { Test } from "@nestjs/testing";
import { Pool } from "pg";
import { AppModule } from "../src/app.module.js";
import { OrdersController } from "../src/orders.controller.js";

describe("the application under Jest", () => {
  let app: INestApplication;

  beforeAll(async () => {
    const module = await Test.createTestingModule({ imports: [AppModule] }).compile();
    app = module.createNestApplication();
    await app.init();
  });
  afterAll(() => app.close());

  test("pays an order once", async () => {
    await app.get(OrdersController).place({ orderId: "o-1", total: 42 });
    const pool = app.get(Pool);
    const deadline = Date.now() + 20_000;
    for (;;) {
      const { rows } = await pool.query("select order_id, amount from payments");
      if (rows.length > 0) {
        expect(rows).toEqual([{ order_id: "o-1", amount: 42 }]);
        break;
      }
      if (Date.now() > deadline) throw new Error("no payment");
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
});
