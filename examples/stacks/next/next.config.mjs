import { fileURLToPath } from "node:url";

// The packages lie one folder up.
const root = fileURLToPath(new URL("..", import.meta.url));

export default {
  output: "standalone",
  distDir: process.env.NEXT_DIST_DIR ?? ".next",
  outputFileTracingRoot: root,
  turbopack: { root },
};
