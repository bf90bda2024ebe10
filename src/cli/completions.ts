/** `agent completions`: what a shell needs to complete the command line. */
import { Argument } from "commander";
import type { Command } from "commander";
import type { Context } from "./context.ts";

const SHELLS = ["bash", "zsh", "fish"];

/** Defines `agent completions`. */
export function defineCompletions(program: Command, _context: Context): void {
  const shell = new Argument("<shell>", "whose script");
  // For help and completions; what else is given is refused below, in words of ours.
  shell.argChoices = SHELLS;
  program.command("completions")
    .summary("print a shell's completion script")
    .description("Prints a script that lets a shell complete commands and flags.")
    .usage("SHELL")
    .addArgument(shell)
    .option("--json", "the script as a string of JSON, with its shell")
    .addHelpText("after", HELP)
    .action(async (shell: string, own: { json?: boolean }) => {
      const { usage } = await import("./failure.ts");
      const { printJson, writeStdout } = await import("./output.ts");
      const { completionScript } = await import("./completion_script.ts");
      const script = completionScript(shell, program);
      if (script === null) {
        throw usage(`There are completions for bash, zsh and fish, not "${shell}".`);
      }
      if (own.json ?? program.opts<{ json?: boolean }>().json) printJson({ shell, script });
      else writeStdout(script);
    });
}

const HELP = `
Examples:
  $ agent completions bash > /etc/bash_completion.d/agent
  $ agent completions zsh > ~/.zfunc/_agent
  $ agent completions fish > ~/.config/fish/completions/agent.fish`;
