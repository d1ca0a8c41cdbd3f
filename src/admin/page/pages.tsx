import type { VNode } from "preact";
import { useRef, useState } from "preact/hooks";
import { Problem } from "./parts.tsx";
import { get, type ServerError } from "./server.ts";

/** The pages of one question so far, and what asks for the next of them. */
export interface Pages<T> {
  readonly pages: readonly T[];
  readonly next: string | null;
  readonly more: () => void;
  readonly busy: boolean;
  readonly error: ServerError | undefined;
}

interface Further<T> {
  readonly first: T | undefined;
  readonly pages: readonly T[];
  readonly busy: boolean;
  readonly error?: ServerError;
}

/**
 * Pages behind a first one, asked for one at a time. They belong to that first page: when there is another, as after a
 * change of the filters, they are gone, and what is still on its way is dropped.
 */
export function usePages<T extends { next: string | null }>(
  path: string,
  params: Readonly<Record<string, string | undefined>>,
  first: T | undefined,
): Pages<T> {
  const [state, setState] = useState<Further<T>>({ first, pages: [], busy: false });
  const { pages: further, busy, error } = state.first === first ? state : { pages: [], busy: false };
  const shown = useRef(first);
  shown.current = first;
  const asking = useRef<T | undefined>(undefined);
  const pages = first === undefined ? [] : [first, ...further];
  const last = pages.at(-1);
  const next = last?.next ?? null;
  const more = (): void => {
    // A second click may come before the button knows of the first.
    if (last === undefined || next === null || asking.current === last) return;
    asking.current = last;
    const answered = (change: Pick<Further<T>, "pages" | "error">): void => {
      if (asking.current === last) asking.current = undefined;
      if (shown.current === first) setState({ first, busy: false, ...change });
    };
    setState({ first, pages: further, busy: true });
    get<T>(path, { ...params, after: next }).then(
      (page) => answered({ pages: [...further, page] }),
      (failed: ServerError) => answered({ pages: further, error: failed }),
    );
  };
  return { pages, next, more, busy, error };
}

/** Asks for the next page, and says when that failed. It stays where it is while it works, so that the keyboard does too. */
export function More({ of, words }: { of: Pages<unknown>; words: string }): VNode | null {
  if (of.next === null) return null;
  return (
    <>
      {of.error === undefined ? null : <Problem error={of.error} />}
      <button type="button" aria-disabled={of.busy} onClick={of.more}>
        {of.busy ? "Working…" : words}
      </button>
    </>
  );
}
