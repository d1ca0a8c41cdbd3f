import { Injectable } from "@nestjs/common";
import type { MessageOf, SqlTransaction } from "txbox";
import { OnMessage } from "txbox/nestjs";
import type { Events } from "./events.js";

@Injectable()
export class PaymentsService {
  @OnMessage("order_created")
  async pay(tx: SqlTransaction, { payload }: MessageOf<Events, "order_created">): Promise<void> {
    await tx.query("insert into payments values ($1, $2)", [payload.orderId, payload.total]);
  }
}
