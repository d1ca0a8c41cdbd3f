import { defineConfig } from "tsup";

export default defineConfig({
  entry: ["main.ts"],
  format: ["cjs"],
  outExtension: () => ({ js: ".cjs" }),
  // By default tsup leaves packages outside.
  noExternal: [/.*/],
  external: ["pg-native"],
});
