import { Module } from "@nestjs/common";
import { Pool } from "pg";
import { createInProcessBus } from "txbox/in-process";
import { TxboxModule } from "txbox/nestjs";
import { createPostgresStore } from "txbox/postgres";
import { DatabaseModule } from "./database.module.js";
import { OrdersController } from "./orders.controller.js";
import { PaymentsService } from "./payments.service.js";

@Module({
  imports: [
    DatabaseModule,
    TxboxModule.forRootAsync({
      inject: [Pool],
      useFactory: async (pool: Pool) => {
        await pool.query("create table if not exists orders (id text primary key, total int)");
        await pool.query("create table if not exists payments (order_id text, amount int)");
        const store = createPostgresStore({ client: pool });
        await store.migrator.migrate();
        const bus = createInProcessBus();
        return {
          store,
          relays: [{ name: "payments", publisher: bus }],
          inboxes: [{ consumer: "payments", subscriber: bus }],
        };
      },
    }),
  ],
  controllers: [OrdersController],
  providers: [PaymentsService],
})
export class AppModule {}
