// Prints its argument and an environment variable, then repeats what it reads until it reads "end".
import { createInterface } from "node:readline";

process.stdout.write(`started ${process.argv[2]} ${process.env["ECHO_WORD"]}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "end") break;
  process.stdout.write(`echo ${line}\n`);
}
process.stdin.destroy();
process.stderr.write("bye\n");
process.exitCode = 3;
