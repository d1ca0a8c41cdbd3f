/** The longer form of tests that have one: `npm run test:long`. */
export const isLong: boolean = process.env["TXBOX_LONG"] === "1";
