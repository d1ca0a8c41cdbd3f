export interface BatchLimits<T> {
  /** Items in one batch. */
  readonly most: number;
  /** Bytes in one batch, and how many an item has. One item always passes. */
  readonly bytes?: { readonly most: number; readonly of: (item: T) => number };
}

/**
 * A function for one item from a function for many: what is asked for in one turn of the event loop goes out together.
 * `send` gives one result for each item, in order; what it throws is thrown for each.
 */
export function inBatches<T, R>(
  { most, bytes }: BatchLimits<T>,
  send: (items: readonly T[]) => Promise<readonly R[]>,
): (item: T) => Promise<R> {
  let gathered: { item: T; answer: PromiseWithResolvers<R> }[] = [];
  let size = 0;

  async function flush(): Promise<void> {
    const sent = gathered;
    gathered = [];
    size = 0;
    try {
      const results = await send(sent.map(({ item }) => item));
      if (results.length !== sent.length) throw new Error(`${results.length} results for ${sent.length} items`);
      for (const [i, { answer }] of sent.entries()) answer.resolve(results[i]!);
    } catch (error) {
      for (const { answer } of sent) answer.reject(error);
    }
  }

  return (item) => {
    const itemSize = bytes?.of(item) ?? 0;
    const isFull = gathered.length >= most || (bytes !== undefined && size + itemSize > bytes.most);
    if (isFull && gathered.length > 0) void flush();
    const answer = Promise.withResolvers<R>();
    const batch = gathered;
    size += itemSize;
    if (batch.push({ item, answer }) === 1) setImmediate(() => void (batch === gathered && flush()));
    return answer.promise;
  };
}
