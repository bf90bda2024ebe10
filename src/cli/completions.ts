/** `agent completions`: what a shell needs to complete the command line. */
import type { Command } from "commander";
import type { Context } from "./context.ts";

/** Defines `agent completions`. */
export function defineCompletions(program: Command, _context: Context): void {
  program.command("completions")
    .summary("print a shell's completion script")
    .description("Prints a script that lets a shell complete commands and flags.")
    .usage("SHELL")
    .argument("<shell>", "bash, zsh or fish")
    .addHelpText("after", HELP)
    .action(async (shell: string) => {
      const { usage } = await import("./failure.ts");
      const { writeStdout } = await import("./output.ts");
      const { completionScript } = await import("./completion_script.ts");
      const script = completionScript(shell, program);
      if (script === null) {
        throw usage(`There are completions for bash, zsh and fish, not "${shell}".`);
      }
      writeStdout(script);
    });
}

const HELP = `
Examples:
  $ agent completions bash > /etc/bash_completion.d/agent
  $ agent completions zsh > ~/.zfunc/_agent
  $ agent completions fish > ~/.config/fish/completions/agent.fish`;
