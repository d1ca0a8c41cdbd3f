import { describe, expect, test } from "vitest";
import { createAdmin, type AdminHandler } from "../../../src/admin/index.ts";
import { ask } from "../../support/admin-scene.ts";

const TOKEN = "a token of more than sixteen characters";
const ELSEWHERE = "10.0.0.9";

const page = (): AdminHandler =>
  createAdmin({ token: TOKEN, stores: { shop: { admin: { figures: async () => undefined } } as never } });

/** Who gets in is told that there is nothing: 404. */
const PATH = "/api/nothing";

const signIn = (admin: AdminHandler, token: string, from: string) =>
  ask(admin, "/api/sign-in", { from, body: { token } });
const bearer = (admin: AdminHandler, token: string, from: string) =>
  ask(admin, PATH, { from, headers: { authorization: `Bearer ${token}` } });
const withCookie = (admin: AdminHandler, cookie: string, from: string) =>
  ask(admin, PATH, { from, headers: { cookie } });

const guesses = Array.from({ length: 12 }, (_, n) => `guess ${n}`);
const refused = [...Array.from({ length: 10 }, () => 401), 429, 429];

async function statuses(asked: (guess: string) => Promise<{ status: number }>): Promise<number[]> {
  const answers: number[] = [];
  for (const guess of guesses) answers.push((await asked(guess)).status);
  return answers;
}

describe("guesses at the token", () => {
  const ends = Date.now() + 3_600_000;
  test.each([
    { way: "sign-in", guess: signIn },
    { way: "Bearer", guess: bearer },
    {
      way: "a forged cookie",
      guess: (admin: AdminHandler, token: string, from: string) =>
        withCookie(admin, `txbox_page=${ends}.${token.replace(" ", "")}`, from),
    },
  ])("by $way are refused after ten, and hold up no other address", async ({ guess }) => {
    const admin = page();
    expect(await statuses((text) => guess(admin, text, ELSEWHERE))).toEqual(refused);
    // From there nothing is compared for a while: the right one neither.
    expect((await bearer(admin, TOKEN, ELSEWHERE)).status).toBe(429);
    expect((await signIn(admin, TOKEN, ELSEWHERE)).status).toBe(429);
    expect((await bearer(admin, TOKEN, "10.0.0.10")).status).toBe(404);
    expect((await signIn(admin, TOKEN, "10.0.0.10")).status).toBe(200);
    expect((await signIn(admin, TOKEN, "127.0.0.1")).status).toBe(200);
  });

  test("only wrong ones count, and the same wrong one counts once", async () => {
    const admin = page();
    for (let n = 0; n < 30; n++) expect((await signIn(admin, TOKEN, ELSEWHERE)).status).toBe(200);
    for (let n = 0; n < 30; n++) expect((await bearer(admin, TOKEN, ELSEWHERE)).status).toBe(404);
    for (let n = 0; n < 30; n++) expect((await bearer(admin, "the token of last year", ELSEWHERE)).status).toBe(401);
    expect((await signIn(admin, TOKEN, ELSEWHERE)).status).toBe(200);
  });

  test("who is signed in stays so, whatever others at the same address guess", async () => {
    const admin = page();
    const cookie = (await signIn(admin, TOKEN, ELSEWHERE)).headers.get("set-cookie")!.split(";")[0]!;
    expect((await withCookie(admin, cookie, ELSEWHERE)).status).toBe(404);
    await statuses((text) => bearer(admin, text, ELSEWHERE));
    expect((await withCookie(admin, cookie, ELSEWHERE)).status).toBe(404);
  });

  test("the addresses of one IPv6 network are one, and an IPv4 address is the same in both forms", async () => {
    const admin = page();
    let host = 0;
    expect(await statuses((text) => bearer(admin, text, `2001:db8:0:1::${(++host).toString(16)}`))).toEqual(refused);
    expect((await bearer(admin, TOKEN, "2001:db8:0:1:ffff::1")).status).toBe(429);
    expect((await bearer(admin, TOKEN, "2001:db8:0:2::1")).status).toBe(404);
    const inBothForms = (text: string) =>
      bearer(admin, `another ${text}`, `${++host % 2 === 0 ? "" : "::ffff:"}10.0.0.7`);
    expect(await statuses(inBothForms)).toEqual(refused);
  });
});
