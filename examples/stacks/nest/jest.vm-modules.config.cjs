/** As `nest new` has it, without a word about txbox: for Node 24.9 and later with --experimental-vm-modules. */
module.exports = {
  moduleFileExtensions: ["js", "json", "ts"],
  moduleNameMapper: { "^(\\.{1,2}/.*)\\.js$": "$1" },
  rootDir: ".",
  testRegex: ".*\\.spec\\.ts$",
  transform: { "^.+\\.(t|j)s$": ["ts-jest", { tsconfig: "<rootDir>/test/tsconfig.json" }] },
  testEnvironment: "node",
};
