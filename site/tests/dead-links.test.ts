import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { deadLinks } from "../lib/dead-links.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "txbox-site-"));
  mkdirSync(join(folder, "stores"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const write = (file: string, body: string): void =>
  writeFileSync(join(folder, file), `<html><body>${body}</body></html>`);

test.each(["/", "/txbox/"])("what is there is no dead link, with the base %s", (base) => {
  write(
    "index.html",
    `<h1 id="top">x</h1><a href="${base}stores/postgres.html#grants-%C3%BC">a</a><a href="#top">b</a>`,
  );
  write("stores/postgres.html", `<h2 id="grants-ü">y</h2><a href="${base}">c</a><a href="../index.html#top">d</a>`);
  expect(deadLinks(folder, base)).toEqual([]);
});

test("pages, headings, pictures and files above the site that are not there are named", () => {
  write(
    "index.html",
    '<a href="/gone.html">a</a><a href="#gone">b</a><img src="/gone.webp"><a href="../README.md">c</a>',
  );
  write("stores/postgres.html", '<a href="/index.html#gone">a</a><a href="https://example.com/">b</a>');
  expect(deadLinks(folder, "/")).toEqual([
    "index.html: /gone.html",
    "index.html: #gone",
    "index.html: ../README.md",
    "index.html: /gone.webp",
    "stores/postgres.html: /index.html#gone",
  ]);
});

test("code that speaks of links is none", () => {
  write(
    "index.html",
    '<pre><code>&lt;a href="/gone.html"&gt;</code></pre><script>const a = \'<a href="/gone">\';</script>',
  );
  expect(deadLinks(folder, "/")).toEqual([]);
});
