import { flushCompileCache } from "node:module";
import type { ContestantName } from "../contestants/index.ts";
import { createContestant } from "../contestants/index.ts";
import type { ConsumeResult, Contestant, DrainOptions, DrainResult, Hearing, Times } from "./contestant.ts";
import { createEnqueueLoop, receiveLoop, steadyWriter } from "./loops.ts";
import type { LoopOptions, LoopResult, WriteOptions } from "./loops.ts";
import type { Shape } from "./shapes.ts";

export interface Usage {
  /** CPU time of this process so far, user and system. */
  cpuMs: number;
  rssBytes: number;
  /** The highest it ever was. */
  maxRssBytes: number;
}

/** What the benchmark can have done in a contestant's process. */
export interface Operations {
  setup(): Promise<void>;
  fill(messages: number): Promise<void>;
  age(messages: number, shape: Shape): Promise<void>;
  drain(options: DrainOptions): Promise<DrainResult>;
  consume(messages: number): Promise<ConsumeResult>;
  stored(): Promise<number>;
  listen(): Promise<void>;
  hear(messages: number): Promise<number>;
  /** What has arrived since `listen`. */
  arrivals(): Promise<Times>;
  hush(): Promise<void>;
  write(options: WriteOptions): Promise<Times>;
  enqueueLoop(options: LoopOptions): Promise<LoopResult>;
  receiveLoop(options: LoopOptions): Promise<LoopResult>;
  usage(): Promise<Usage>;
}

function createOperations(url: string, contestant: Contestant): Operations {
  let hearing: Hearing | undefined;
  return {
    setup: () => contestant.setup(),
    fill: (messages) => able(contestant.fill)(messages),
    age: (messages, shape) => able(contestant.age)(messages, shape),
    drain: (options) => able(contestant.drain)(options),
    consume: (messages) => able(contestant.consume)(messages),
    stored: () => able(contestant.stored)(),
    async listen() {
      hearing = await able(contestant.listen)();
    },
    hear: (messages) => able(contestant.hear)(messages),
    arrivals: () => Promise.resolve(hearing?.arrivals() ?? []),
    async hush() {
      await hearing?.stop();
    },
    write: (options) => steadyWriter(url, contestant, options),
    enqueueLoop: createEnqueueLoop(url, contestant),
    receiveLoop: (options) => receiveLoop(contestant, options),
    usage() {
      const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
      const rssBytes = process.memoryUsage.rss();
      return Promise.resolve({ cpuMs: (userCPUTime + systemCPUTime) / 1000, rssBytes, maxRssBytes: maxRSS * 1024 });
    },
  };
}

function able<T>(method: T | undefined): T {
  if (method === undefined) throw new Error("this contestant cannot do that");
  return method;
}

interface Request {
  id: number;
  method: keyof Operations;
  args: unknown[];
}

const [name, url, ...more] = process.argv.slice(2) as [ContestantName, string, ...string[]];
const contestant = await createContestant(name, url, more);
// For the next process of this run.
flushCompileCache();
const operations = createOperations(url, contestant);

async function answer({ id, method, args }: Request): Promise<void> {
  try {
    const run = operations[method] as (...args: unknown[]) => Promise<unknown>;
    process.send?.({ id, value: await run(...args) });
  } catch (error) {
    process.send?.({ id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
}

process.on("message", (request: Request) => void answer(request));
process.once("disconnect", () => void (contestant.close?.() ?? Promise.resolve()).finally(() => process.exit(0)));
