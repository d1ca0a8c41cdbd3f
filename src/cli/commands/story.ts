import { basename, dirname, resolve } from "node:path";
import { readStory, type Story, type StoryMessage, type StoryPlace } from "../../admin/index.ts";
import type { Store } from "../../core/contracts.ts";
import { describeError } from "../../core/errors.ts";
import type { CliContext } from "../cli-context.ts";
import { defineCommand, type Command } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { messageRecord } from "../json-text.ts";
import { isKnown, storyText } from "../story-text.ts";
import { noMore } from "../subcommand.ts";
import { UsageError } from "../usage-error.ts";

const command = "story";

export const storyCommand: Command = defineCommand({
  name: command,
  summary: "one message over all services: relays, consumers, and what came of it",
  usage: ["story ID [--stores NAME,NAME] [--most N] [--config FILE]…"],
  about:
    "Asks the own store and all `stores` of the configuration; --stores names some of them, or databases by their URLs. Several\n" +
    "--config ask the own store of each. What came of a message is found by causationId among the messages of its correlation,\n" +
    "so all services that hand it on appear in one tree. A store that is down is named. Nothing is changed.",
  flags: {
    stores: { kind: "list", value: "STORE", help: "only these: names of `stores`, URLs, or `main`, the own one" },
    most: { kind: "integer", min: 1, help: "at most this many messages (default 500)" },
    config: { kind: "list", value: "FILE", help: "configuration files, each with its own store" },
  },
  words: true,
  examples: [
    ["story 01980c7e-6f0a-7cc3-98c4-dc0c0c07398f", "an order, its payment, and the mail about it"],
    ["story order-4711 --config orders/txbox.config.ts --config payments/txbox.config.ts", "of two services"],
  ],
  async run(context, { flags, positionals }) {
    const [id, ...more] = positionals;
    if (id === undefined) throw new UsageError("Which message? Give its id: txbox story ID", { command });
    noMore(command, more);
    const { stores, failed } = await openAll(context, flags.config ?? [], flags.stores);
    if (Object.keys(stores).length === 0) throw failed[0]?.cause;
    const told = await readStory(stores, id, flags.most === undefined ? {} : { most: flags.most });
    const unreachable = [...failed.map(({ store, error }) => ({ store, error })), ...told.unreachable];
    const story: Story = { ...told, unreachable };
    context.output.result(record(story), () => storyText(story));
    return isKnown(story) ? EXIT.ok : EXIT.failed;
  },
});

interface Opened {
  readonly stores: Record<string, Store>;
  readonly failed: readonly { readonly store: string; readonly error: string; readonly cause: unknown }[];
}

/** A store that cannot be opened is told of, and the others are asked. What is wrong with the flags is an error. */
async function openAll(
  context: CliContext,
  configs: readonly string[],
  only: readonly string[] | undefined,
): Promise<Opened> {
  const stores: Record<string, Store> = {};
  const failed: { store: string; error: string; cause: unknown }[] = [];
  const opening = configs.length > 1 ? ofConfigs(context, configs, only) : await ofOne(context, only);
  for (const [name, open] of opening) {
    try {
      stores[name] = await open();
    } catch (cause) {
      if (cause instanceof UsageError) throw cause;
      failed.push({ store: name, error: context.output.secrets.hide(describeError(cause)), cause });
    }
  }
  return { stores, failed };
}

type Opening = [name: string, open: () => Promise<Store>][];

async function ofOne(context: CliContext, only: readonly string[] | undefined): Promise<Opening> {
  const other = (name: string) => async () => (await context.openOther(name, "--stores")).store;
  const own = async () => (await context.open()).store;
  const ownName = await context.ownName();
  if (only !== undefined)
    return only.map((name, i) => {
      return name === ownName || name === "own" ? [ownName, own] : [labelOf(name, i), other(name)];
    });
  const { config } = await context.loadConfig();
  const named = Object.keys(config.stores ?? {}).map((name): Opening[number] => [name, other(name)]);
  return named.length > 0 && !(await context.hasOwn()) ? named : [[ownName, own], ...named];
}

function ofConfigs(context: CliContext, configs: readonly string[], only: readonly string[] | undefined): Opening {
  if (only !== undefined) throw new UsageError("--stores goes with one --config", { command });
  const folders = configs.map((file) => basename(dirname(resolve(context.cwd, file))));
  const areApart = new Set(folders).size === folders.length;
  return configs.map((file, i): Opening[number] => {
    return [areApart ? folders[i]! : file, async () => (await context.openConfig(file)).store];
  });
}

/** A URL may hold a password. */
function labelOf(name: string, i: number): string {
  return /^[\w.-]+$/.test(name) ? name : `store ${i + 1}`;
}

/** Bodies as JSON can show them. */
function record({ message, causes, ...story }: Story): object {
  const places = (all: readonly StoryPlace[]) => all.map(messageRecord);
  const withCaused = (one: StoryMessage): object => ({
    ...one,
    places: places(one.places),
    caused: one.caused.map(withCaused),
  });
  return {
    message: withCaused(message),
    causes: causes.map((cause) => ({ ...cause, places: places(cause.places) })),
    ...story,
  };
}
