import { printable } from "../../core/printable.ts";
import { defineCommand, type Command } from "../command.ts";

export const maintainCommand: Command = defineCommand({
  name: "maintain",
  summary: "rotate and drop log segments once",
  usage: ["maintain"],
  about:
    "Relays do this by themselves every minute. Run it where they must not (their role owns no tables) or where none runs.\n" +
    "How long messages are kept is set in the configuration: database.segmentMs, retentionMs, abandonAfterMs;\n" +
    "database.archive says where segments go before they are dropped.",
  flags: {},
  examples: [["maintain", "from cron, as the role that owns the tables"]],
  async run(context) {
    const { store, where } = await context.open();
    context.output.note(`Maintaining ${where} …`);
    const report = await store.maintenance.run();
    context.output.result(report, () => {
      const lines = [report.rotated ? "Began a new segment." : "The present segment goes on."];
      lines.push(
        report.droppedSegments.length === 0
          ? "Nothing was old enough to drop."
          : `Dropped ${report.droppedSegments.join(", ")}.`,
      );
      if (report.heldBackBy.length > 0) lines.push(`Older segments are kept for ${report.heldBackBy.join(", ")}.`);
      if (report.archiveError !== undefined) lines.push(report.archiveError);
      return `${lines.map(printable).join("\n")}\n`;
    });
  },
});
