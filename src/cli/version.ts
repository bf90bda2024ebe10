/** `agent --version`. */
import type { Command } from "commander";
import { VERSION } from "../version.ts";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent version`, which `agent --version` stands for. */
export function defineVersion(program: Command, _context: Context): void {
  const command = program.command("version", { hidden: true })
    .summary("print the version")
    .description("Prints the version of this program.")
    .usage("[options]          (as agent --version)")
    .addHelpText("after", HELP);
  // It asks no agent; but whoever always names the socket may do so here, too.
  clientOptions(command).action(async () => {
    const { print, printJson } = await import("./output.ts");
    if (clientOptionsOf(command).json) printJson({ version: VERSION });
    else print(VERSION);
  });
}

const HELP = `
Examples:
  $ agent --version
  $ agent --version --json | jq -r .version`;
