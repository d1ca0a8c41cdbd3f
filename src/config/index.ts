export {
  defineConfig,
  type DatabaseConfig,
  type ReconcilerConfig,
  type RelayConfig,
  type TxboxConfig,
} from "./define-config.ts";
