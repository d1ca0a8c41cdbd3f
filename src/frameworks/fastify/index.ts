export {
  txboxFastify,
  type FastifyInboxPart,
  type FastifyLike,
  type TxboxFastify,
  type TxboxFastifyOptions,
} from "./txbox-fastify.ts";
export type { RelayPart } from "../shared/messaging.ts";
