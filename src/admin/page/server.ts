import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Failure, PAGE_HEADER } from "../page-api.ts";
import { folder } from "./route.ts";
import { visible } from "./words.ts";

/** What the server refused, or that it could not be reached. */
export class ServerError extends Error {
  override readonly name = "ServerError";
  readonly status: number;
  readonly fix: string | null;

  constructor(status: number, message: string, fix: string | null) {
    super(message);
    this.status = status;
    this.fix = fix;
  }

  get words(): string {
    return visible(this.fix === null ? `${this.message}.` : `${this.message}. ${this.fix}.`).replace("..", ".");
  }
}

const DEADLINE_MS = 30_000;

/** Said when the server does not know any more who this is. */
export const SIGNED_OUT = "txbox-signed-out";

/** The server knows who it is, or nothing of it, and shows nothing. */
export function isRefusal(error: unknown): boolean {
  return error instanceof ServerError && (error.status === 401 || error.status === 403);
}

async function ask<T>(path: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`${folder}api/${path}`, { ...init, signal: AbortSignal.timeout(DEADLINE_MS) });
  } catch {
    throw new ServerError(0, "The server of this page gives no answer", null);
  }
  const value: unknown = await response.json().catch(() => null);
  if (response.ok && value !== null) return value as T;
  if (response.ok)
    throw new ServerError(403, "Something else than the page answers: a login may be over", "Load the page again");
  if (response.status === 401) dispatchEvent(new Event(SIGNED_OUT));
  const failure = value as Failure | null;
  throw new ServerError(
    response.status,
    failure?.error ?? `The server answered ${response.status}`,
    failure?.fix ?? null,
  );
}

export function get<T>(path: string, params: Readonly<Record<string, string | undefined>> = {}): Promise<T> {
  const given = Object.entries(params).filter((entry): entry is [string, string] => (entry[1] ?? "") !== "");
  const query = new URLSearchParams(given).toString();
  return ask<T>(query === "" ? path : `${path}?${query}`, { headers: { [PAGE_HEADER]: "1" } });
}

export function post<T>(path: string, body: unknown): Promise<T> {
  const headers = { [PAGE_HEADER]: "1", "content-type": "application/json" };
  return ask<T>(path, { method: "POST", headers, body: JSON.stringify(body) });
}

export interface Loaded<T> {
  value: T | undefined;
  error: ServerError | undefined;
  loading: boolean;
  reload: () => void;
}

/** What a path gives; asked again when the path or the parameters change. What was there stays until then. */
export function useLoaded<T>(path: string, params: Readonly<Record<string, string | undefined>>): Loaded<T> {
  const key = JSON.stringify([path, params]);
  const [state, setState] = useState<{ key: string; value?: T; error?: ServerError; loading: boolean }>({
    key,
    loading: true,
  });
  const [turn, setTurn] = useState(0);
  const latest = useRef(0);
  useEffect(() => {
    const mine = ++latest.current;
    setState((before) => (before.key === key ? { ...before, loading: true } : { key, loading: true }));
    get<T>(path, params).then(
      (value) => {
        if (mine === latest.current) setState({ key, value, loading: false });
      },
      (error: ServerError) => {
        if (mine === latest.current)
          setState((before) => ({ ...(before.key === key ? before : { key }), error, loading: false }));
      },
    );
  }, [key, turn]);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  const isCurrent = state.key === key;
  return {
    value: isCurrent ? state.value : undefined,
    error: isCurrent ? state.error : undefined,
    loading: state.loading || !isCurrent,
    reload,
  };
}
