import { integer, pgTable, text } from "drizzle-orm/pg-core";

export const order = pgTable("order", { id: text().primaryKey(), total: integer().notNull() });
export const payment = pgTable("payment", { orderId: text("order_id").primaryKey(), amount: integer().notNull() });
