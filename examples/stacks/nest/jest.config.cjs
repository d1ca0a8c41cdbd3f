/** What Jest needs, in CommonJS: of the application, and of txbox, which consists of ES modules. */
const compilerOptions = {
  target: "es2023",
  module: "commonjs",
  moduleResolution: "node10",
  resolvePackageJsonExports: false, // Nest's own tsconfig.json has it, and Jest's ts-jest reads that too
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
  esModuleInterop: true,
  allowJs: true,
  isolatedModules: true,
};

/** @type {import("jest").Config} */
module.exports = {
  testEnvironment: "node",
  rootDir: __dirname,
  testMatch: ["<rootDir>/test/**/*.spec.ts"],
  moduleNameMapper: { "^(\\.{1,2}/.*)\\.js$": "$1" },
  transform: { "^.+\\.[jt]s$": ["ts-jest", { tsconfig: compilerOptions }] },
  // Jest cannot require ES modules: txbox is made into CommonJS as well.
  transformIgnorePatterns: ["/node_modules/(?!txbox/)"],
};
