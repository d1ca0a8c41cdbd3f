export type StoreName = "postgres" | "mongodb";
export const STORES: readonly StoreName[] = ["postgres", "mongodb"];
export async function fuzzStore(_: {
  store: StoreName;
  databaseUrl: string;
  count: number;
  seed: number;
}): Promise<object> {
  throw new Error("later");
}
