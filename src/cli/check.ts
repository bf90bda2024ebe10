/** `agent --check`: one line for monitoring. */
import type { Command } from "commander";
import type { StatusResult } from "../client/mod.ts";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent check`, which `agent --check` stands for. */
export function defineCheck(program: Command, context: Context): void {
  const command = program.command("check", { hidden: true })
    .summary("whether writes could be guarded now")
    .description("Tells in one line whether this host's agent could guard writes now.")
    .usage("[options]          (as agent --check)")
    .addHelpText("after", HELP);
  clientOptions(command).action(async () => {
    const { withAgent } = await import("./agent.ts");
    const { checkLine, oneLine } = await import("./check_line.ts");
    const { EXIT, Failure } = await import("./failure.ts");
    const { print, printJson } = await import("./output.ts");
    const options = clientOptionsOf(command);
    try {
      const status = await withAgent(options, (agent) => agent.call("status", {}));
      if (options.json) printJson(checkOf(status));
      else print(checkLine(status));
      context.exit = status.healthy ? EXIT.ok : EXIT.no;
    } catch (error) {
      // The line is the result: whoever monitors reads stdout, also when the answer is bad.
      if (!(error instanceof Failure) || error.exit === EXIT.usage) throw error;
      const reachable = error.exit !== EXIT.unavailable;
      const { message } = error;
      if (options.json) printJson({ healthy: false, reachable, message });
      else print(oneLine(`${reachable ? "unhealthy" : "unreachable"}: ${message}`));
      context.exit = reachable ? EXIT.no : EXIT.unavailable;
    }
  });
}

/** What `--check --json` tells. */
function checkOf({ healthy, node, state, checks, warnings }: StatusResult) {
  return { healthy, reachable: true, node, state, checks, warnings };
}

const HELP = `
Examples:
  $ agent --check
  $ agent --check --json

Exit statuses:
  0   healthy
  1   the agent answers, but could not guard writes now: each failing check is
      named
  69  no agent`;
