import { StreamReader } from "./stream-reader.ts";

/**
 * One of several readers of a stream: takes new entries, and entries that other members have left pending. Keeps no
 * order.
 */
export class SharedReader extends StreamReader {
  protected async takeEntries(): Promise<void> {
    await this.takePending({ member: this.group.member });
    this.recovered();
    const { clock, takeOverAfterMs } = this.settings;
    let takeOverAt = 0;
    while (!this.stopping.signal.aborted) {
      if (clock.monotonic() >= takeOverAt) {
        await this.takePending({ minIdleMs: takeOverAfterMs });
        takeOverAt = clock.monotonic() + takeOverAfterMs / 2;
      }
      const entries = await this.group.read(this.blocking, await this.room(), this.blockMs);
      await this.deliver(entries);
    }
  }

  protected keepEntries(): Promise<void> {
    return this.held.renew();
  }

  protected lossOf(): AbortController {
    return new AbortController();
  }
}
