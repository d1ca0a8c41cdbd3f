export { TxboxModule, type TxboxAsyncOptions } from "./txbox-module.ts";
export { OnMessage, type HandlerDecorator } from "./on-message.ts";
export { TxboxHealth, TxboxOutbox, type AnyTransaction, type IndicatorResult } from "./services.ts";
export { nestLogger, type NestLoggerLike } from "./nest-logger.ts";
export type { InboxPart, MessagingOptions, RelayPart } from "../shared/messaging.ts";
