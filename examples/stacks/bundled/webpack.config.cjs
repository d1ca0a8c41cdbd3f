const { join } = require("node:path");

module.exports = {
  mode: "production",
  target: "node",
  entry: join(__dirname, "main.ts"),
  output: { filename: "main.cjs" },
  // The optional native client of pg, which is not installed.
  externals: { "pg-native": "commonjs pg-native" },
  resolve: { extensions: [".ts", ".js"] },
  module: {
    rules: [{ test: /\.ts$/, loader: "ts-loader", options: { transpileOnly: true } }],
  },
};
