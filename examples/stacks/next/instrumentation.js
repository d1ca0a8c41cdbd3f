/** Next calls it once, when a server starts. */
export async function register() {
  if (process.env.NEXT_RUNTIME !== "nodejs") return;
  const { prepare } = await import("./lib/messaging.js");
  await prepare();
}
