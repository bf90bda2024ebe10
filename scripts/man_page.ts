/**
 * Prints the man page agent(1), made of the definitions of the commands, so that it says what
 * `--help` says.
 * @module
 */
import type { Command } from "commander";
import { createProgram } from "../src/cli/program.ts";
import { VERSION } from "../src/version.ts";

/** A backslash would begin a request of troff's, and so would a dot or a quote that begins a line. */
function text(line: string): string {
  const escaped = line.replaceAll("\\", "\\e").replaceAll("-", "\\-");
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}

function paragraphs(value: string): string[] {
  return value.split("\n\n").flatMap((each) => [".PP", text(each.replace(/\s+/g, " ").trim())]);
}

function options(command: Command): string[] {
  const help = command.createHelp();
  return help.visibleOptions(command).filter((option) => option.long !== "--help").flatMap((
    option,
  ) => [
    ".TP",
    `\\fB${text(option.flags).replace(/ (<.*>)$/, "\\fR $1")}\\fR`,
    text(help.optionDescription(option)),
  ]);
}

/** What `--help` adds at the end: examples, environment, exit statuses; as it is laid out there. */
function addition(command: Command): string[] {
  const lines: string[] = [];
  command.configureOutput({ ...command.configureOutput(), writeOut: (chunk) => lines.push(chunk) });
  command.outputHelp();
  const after = lines.slice(1).join("").trim();
  return after === "" ? [] : [".PP", ".nf", ...after.split("\n").map(text), ".fi"];
}

/** As the units and the package have them. */
const FILES = [
  ["/etc/zit-agent/agent.env", "settings of the service: each flag of `agent run` as ZIT_AGENT_…"],
  ["/etc/credstore/zit-agent.creds", "NATS credentials that systemd passes to the service"],
  ["/run/zit-agent/agent.sock", "the service's socket"],
  ["/var/lib/zit-agent", "what the agent remembers of its last run"],
  ["/var/lib/zit/STORE/lease.lock", "a store's lock file"],
  [
    "/usr/share/doc/zit-agent/operations.md",
    "the manual for operators, where the package is installed",
  ],
] as const;

function page(program: Command): string[] {
  const commands = program.commands.filter((command) => command.name() !== "help");
  const visible = program.createHelp().visibleCommands(program)
    .filter((command) => commands.includes(command));
  return [
    `.TH AGENT 1 "" "zit-agent ${VERSION}" "User Commands"`,
    ".SH NAME",
    "agent \\- one writer per store, fleet\\-wide",
    ".SH SYNOPSIS",
    ".nf",
    ...visible.flatMap((command) =>
      `agent ${command.name()} ${command.usage()}`.split("\n").map((line) => text(line.trim()))
    ),
    text("agent --check"),
    ".fi",
    ".SH DESCRIPTION",
    ...paragraphs(program.description()),
    ...options(program),
    ...addition(program),
    ".SH COMMANDS",
    ...commands.flatMap((command) => [
      `.SS ${text(`agent ${command.name()}`)}`,
      ...paragraphs(command.description()),
      ...options(command),
      ...addition(command),
    ]),
    ".SH FILES",
    ...FILES.flatMap(([path, what]) => [".TP", `\\fI${text(path)}\\fR`, text(what)]),
    ".SH SEE ALSO",
    ".BR flock (1),",
    ".BR systemd.service (5),",
    ".BR nats\\-server (8)",
  ];
}

console.log(page(createProgram({ env: {}, exit: 0 })).join("\n"));
