/** `agent status`: what the agent does. */
import type { Command } from "commander";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent status`. */
export function defineStatus(program: Command, context: Context): void {
  const command = program.command("status")
    .summary("what the agent does, and how it is")
    .description("Shows what this host's agent does, and whether it is well.")
    .addHelpText("after", HELP);
  clientOptions(command).action(async () => {
    const { withAgent } = await import("./agent.ts");
    const { painter, print, printJson, useColour } = await import("./output.ts");
    const { statusLines } = await import("./status_text.ts");
    const options = clientOptionsOf(command);
    const status = await withAgent(options, (agent) => agent.call("status", {}));
    if (options.json) return printJson(status);
    const paint = painter(useColour(context.env, process.stdout.isTTY === true));
    for (const line of statusLines(status, paint)) print(...line);
  });
}

const HELP = `
Examples:
  $ agent status
  $ agent status --json | jq .counts

Exit statuses:
  0   answered, healthy or not (see agent --check)
  64  used wrongly
  69  no agent`;
