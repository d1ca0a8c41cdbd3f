export {
  defineConfig,
  type DatabaseConfig,
  type ReconcilerConfig,
  type RelayConfig,
  type StoreConfig,
  type TxboxConfig,
} from "./define-config.ts";
