/** Runs tasks one after another: each begins when the one before has ended, with or without an error. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  run<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#last.then(task);
    this.#last = result.catch(() => undefined);
    return result;
  }
}
