/**
 * The command line: the commands, how a wrong use of them is told, and exit statuses.
 * @module
 */
import { Command, CommanderError } from "commander";
import type { Context } from "./context.ts";
import { EXIT, Failure } from "./failure.ts";
import { say, writeStderr, writeStdout } from "./output.ts";
import { defineCheck } from "./check.ts";
import { defineCompletions } from "./completions.ts";
import { defineExecLocked } from "./exec_locked.ts";
import { defineGuard } from "./guard.ts";
import { defineHeld } from "./held.ts";
import { defineHistory } from "./history.ts";
import { defineHolder } from "./holder.ts";
import { defineLeases } from "./leases.ts";
import { defineRun } from "./run.ts";
import { defineStatus } from "./status.ts";
import { defineStepdown } from "./stepdown.ts";
import { defineVerify } from "./verify.ts";
import { defineVersion } from "./version.ts";
import { defineWatch } from "./watch.ts";

/** Builds the command line. Definitions are light; what a command needs is loaded by its action. */
export function createProgram(context: Context): Command {
  const program = new Command("agent")
    .description("One writer per store, fleet-wide: holds zit leases and guards writes.")
    .usage("COMMAND [options]")
    .option("--version", "print the version")
    .helpOption("--help, -h", "print this help")
    .helpCommand("help [command]", "a command's options, examples, exit statuses")
    // Behind a command's name a flag is the command's or nobody's: `held s --version` must not be 0.
    .enablePositionalOptions()
    .option("--check", "could writes be guarded now? in one line")
    .option("--socket <PATH>", "the agent's socket; see Environment")
    .option("--json", "results as JSON")
    .configureHelp({
      sortOptions: false,
      showGlobalOptions: false,
      subcommandTerm,
    })
    .configureOutput({
      writeOut: writeStdout,
      writeErr: writeStderr,
      getOutHelpWidth: () => HELP_COLUMNS,
      getErrHelpWidth: () => HELP_COLUMNS,
      outputError: () => {}, // told by explain() instead, in our own form
    })
    .exitOverride()
    .addHelpText("after", ROOT_HELP);
  const define = [
    defineRun,
    defineGuard,
    defineVerify,
    defineHeld,
    defineHolder,
    defineLeases,
    defineStatus,
    defineWatch,
    defineHistory,
    defineStepdown,
    defineCheck,
    defineVersion,
    defineCompletions,
    defineExecLocked,
  ];
  for (const one of define) one(program, context);
  return program;
}

/** A command in the list of commands: how it is used in the main, without what all have. */
function subcommandTerm(command: Command): string {
  const [usage] = command.usage().split("\n");
  return `${command.name()} ${usage.replace(/ ?\[(?:options|flags)\]/, "")}`.trimEnd();
}

/** What any terminal shows; the texts behind the options are laid out for it, too. */
const HELP_COLUMNS = 80;

const ROOT_HELP = `
Examples:
  $ agent run --node host-1 --nats nats://nats-1:4222,nats://nats-2:4222
  $ agent guard my-project -- zit add file.txt   write while we hold the lease
  $ agent held my-project && echo "this node may write"
  $ agent --check                                for monitoring: one line

Exit statuses (of guard: the command's own, unless refused):
  0   yes, done
  1   no
  64  used wrongly
  66  no such store directory
  69  agent or coordinator not reachable
  70  fault in the agent
  73  socket or state directory unusable
  74  the result cannot be written
  75  not now: another node or writer, grace, stopping, or too busy
  76  the disk has seen a newer epoch
  77  not permitted, or no such grant
  78  configuration contradicts itself
  79  the lease went while the command ran, or was about to: it was ended

Environment:
  ZIT_AGENT_SOCKET  the agent's socket, where no --socket is given; else it is
                    /run/zit-agent/agent.sock for root, and for others
                    $XDG_RUNTIME_DIR/zit-agent/agent.sock
  ZIT_AGENT_…       each flag of \`agent run\`: ZIT_AGENT_NATS for --nats
  NO_COLOR          no colours`;

/**
 * Runs a command line and returns its exit status. Nothing is thrown: each error becomes a message
 * on stderr, without a stack trace.
 */
export async function runProgram(argv: readonly string[], context: Context): Promise<number> {
  const program = createProgram(context);
  try {
    await program.parseAsync(unknownTopic(flagAsCommand(argv), program), { from: "user" });
    return context.exit;
  } catch (error) {
    if (error instanceof CommanderError) return explain(error, program, argv);
    if (error instanceof Failure) {
      say(error.message);
      return error.exit;
    }
    say(`This is a fault of the agent itself, please report it: ${String(error)}`);
    if (context.env.ZIT_AGENT_DEBUG) writeStderr(`${(error as Error).stack}\n`);
    return EXIT.software;
  }
}

/** These stand alone, as commands do: a program with commands cannot have an action, too. */
const ALONE = ["--check", "--version"];

/** `agent --check` is the command `check`. */
function flagAsCommand(argv: readonly string[]): string[] {
  for (let i = 0; i < argv.length && argv[i]!.startsWith("-") && argv[i] !== "--"; i++) {
    const flag = argv[i]!;
    if (ALONE.includes(flag)) return [flag.slice(2), ...argv.slice(0, i), ...argv.slice(i + 1)];
    if (flag === "--socket") i++;
  }
  return [...argv];
}

/** `agent help nope` is as wrong as `agent nope` is, and told in the same way. */
function unknownTopic(argv: string[], program: Command): string[] {
  const [first, topic] = argv;
  const isTopic = topic === undefined || topic === "help" || topic.startsWith("-") ||
    program.commands.some((command) => command.name() === topic);
  return first === "help" && !isTopic ? [topic] : argv;
}

/** Tells a wrong use: what is wrong, the nearest right thing, and where to read on. */
function explain(error: CommanderError, program: Command, argv: readonly string[]): number {
  if (error.exitCode === 0) return EXIT.ok; // --help
  if (error.code === "commander.help") return EXIT.usage; // no command: help was printed
  const [what = "", suggestion] = error.message.replace(/^error: /, "").split("\n");
  const named = program.commands.find((command) => command.name() === program.args[0]);
  const help = named === undefined ? "agent --help" : `agent help ${named.name()}`;
  const ours = named?.name() === "guard" ? guardHint(error, argv) : null;
  const hint = aloneHint(error) ?? ours ?? suggestion?.replace(/^\((.*)\)$/, "$1") ?? "";
  say(`${what.replace(/\.$/, "")}. ${hint && `${hint} `}See \`${help}\`.`);
  return EXIT.usage;
}

function aloneHint({ code, message }: CommanderError): string | null {
  if (code !== "commander.unknownOption") return null;
  const flag = ALONE.find((each) => message.includes(`'${each}'`));
  return flag === undefined ? null : `It stands alone: \`agent ${flag}\`.`;
}

function guardHint(error: CommanderError, argv: readonly string[]): string | null {
  const dashes = argv.includes("--");
  if (error.code === "commander.unknownOption" && !dashes) {
    return "Put `--` before the command to run.";
  }
  return error.code === "commander.missingArgument" && dashes
    ? "Put the store before `--`, and the command behind it."
    : null;
}
