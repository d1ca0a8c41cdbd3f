import type { PublishResult } from "../core/contracts.ts";

/** What a publisher has told of single messages of a batch. */
export class ToldResults {
  /** Resolves once every message has a result, or is known to take long. */
  readonly all: Promise<undefined>;
  readonly #allTold: (value: undefined) => void;
  readonly #results: (PublishResult | { status: "running" } | undefined)[];
  readonly #late = new Map<number, PromiseWithResolvers<PublishResult>>();
  #untold: number;

  constructor(count: number) {
    this.#results = Array.from({ length: count });
    this.#untold = count;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.all = promise;
    this.#allTold = resolve;
  }

  readonly tell = (index: number, result: PublishResult | { readonly status: "running" }): void => {
    const known = this.#results[index];
    if (index >= this.#results.length || (known !== undefined && known.status !== "running")) return;
    this.#results[index] = result;
    if (known === undefined) this.#untold--;
    if (result.status !== "running") this.#late.get(index)?.resolve(result);
    if (this.#untold === 0) this.#allTold(undefined);
  };

  /** Results as they are now; missing ones come later, from the publication or its end. */
  goOn(ended: Promise<readonly PublishResult[]>): readonly (PublishResult | { status: "running" } | undefined)[] {
    const now = [...this.#results];
    for (const [index, result] of now.entries()) {
      if (result!.status === "running") this.#late.set(index, Promise.withResolvers<PublishResult>());
    }
    ended.then(
      (results) => this.#end((index) => results[index]),
      (error: unknown) => this.#end(() => ({ status: "unavailable", error })),
    );
    return now;
  }

  /** The final results that were told before the publication ended with an error. */
  ended(): (PublishResult | undefined)[] {
    return this.#results.map((result) => (result?.status === "running" ? undefined : result));
  }

  late(index: number): Promise<PublishResult> {
    return this.#late.get(index)!.promise;
  }

  #end(resultOf: (index: number) => PublishResult | undefined): void {
    for (const [index, { resolve }] of this.#late) resolve(resultOf(index) ?? { status: "unavailable" });
  }
}
