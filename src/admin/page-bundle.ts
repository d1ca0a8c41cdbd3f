/** A file of the page: its name has a hash of its contents in it, so that browsers may keep it for good. */
export interface PageFile {
  readonly name: string;
  readonly type: string;
  readonly gzip: Uint8Array;
}

export interface PageBundle {
  readonly script: PageFile;
  readonly style: PageFile;
}

/**
 * Code and style of the page. Here, in the sources, they are built when they are first asked for; `npm run build` puts a
 * module with the finished bytes in the place of this one, so the package needs no bundler and no files beside it.
 */
export async function pageBundle(): Promise<PageBundle> {
  const script = new URL("../../scripts/build-page.ts", import.meta.url).href;
  const { buildPage } = (await import(script)) as { buildPage: () => Promise<PageBundle> };
  return buildPage();
}
