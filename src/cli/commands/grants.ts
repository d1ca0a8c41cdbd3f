import { postgresGrants } from "../../stores/postgres/postgres-grants.ts";
import { postgresNames } from "../../stores/postgres/postgres-names.ts";
import { defineCommand, type Command } from "../command.ts";
import { requirePostgres } from "../open-store.ts";
import { UsageError } from "../usage-error.ts";

const ROLES = ["writer", "consumer", "relay", "maintainer", "viewer"] as const;

export const grantsCommand: Command = defineCommand({
  name: "grants",
  summary: "print the GRANT statements for your roles",
  usage: ["grants [--writer ROLE] [--consumer ROLE] [--relay ROLE] [--maintainer ROLE] [--viewer ROLE]"],
  about: "Prints SQL and changes nothing; needs no connection. Run the SQL as the owner of the tables.",
  flags: {
    writer: { kind: "text", value: "ROLE", help: "applications that enqueue" },
    consumer: { kind: "text", value: "ROLE", help: "applications with an inbox" },
    relay: { kind: "text", value: "ROLE", help: "relay processes, and the commands for relays and dead letters" },
    maintainer: { kind: "text", value: "ROLE", help: "the role that migrates, rotates segments and drops old ones" },
    viewer: { kind: "text", value: "ROLE", help: "people who look at everything and change nothing" },
  },
  examples: [["grants --writer app --relay txbox_relay | psql", "give two roles the least they need"]],
  async run(context, { flags }) {
    const roles = Object.fromEntries(ROLES.flatMap((role) => (flags[role] === undefined ? [] : [[role, flags[role]]])));
    if (Object.keys(roles).length === 0) {
      throw new UsageError(`Name at least one role: ${ROLES.map((role) => `--${role}`).join(", ")}`, {
        command: "grants",
      });
    }
    const { config } = await context.loadConfig();
    const ownStore = config.store !== undefined;
    const sql = ownStore
      ? requirePostgres((await context.openUnchecked()).store).grants(roles)
      : postgresGrants(postgresNames(await context.names()), roles);
    context.output.program({ sql }, sql);
  },
});
