import { defineConfig } from "vite";

export default defineConfig({
  build: { ssr: "main.ts", emptyOutDir: true, rollupOptions: { output: { entryFileNames: "main.mjs" } } },
  // Packages into the bundle; without it they are imported when it runs.
  ssr: { noExternal: true, external: ["pg-native"] },
});
