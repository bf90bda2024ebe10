/** `agent run`: the daemon. */
import { Option } from "commander";
import type { Command } from "commander";
import type { RawFlags } from "./flag_values.ts";
import type { Context } from "./context.ts";
import { FLAGS, twinOf } from "./run_flags.ts";
import type { Flag } from "./run_flags.ts";

/** Defines `agent run`. */
export function defineRun(program: Command, context: Context): void {
  const command = program.command("run")
    .summary("run the agent on this host")
    .description(DESCRIPTION)
    .usage("--node NAME --nats URL… [flags]\n       agent run --standalone REASON [flags]")
    .addHelpText("after", HELP);
  for (const flag of FLAGS) command.addOption(optionOf(flag));
  command.addOption(
    new Option("--print-config", "print each setting and where it came from, and end")
      .helpGroup("Help:"),
  ).addOption(new Option("--json", "with --print-config: as JSON").helpGroup("Help:"));
  command.action(async (options: RawFlags) => {
    const { socketOf } = await import("./agent.ts");
    const { FlagValues } = await import("./flag_values.ts");
    const { runOptionsOf } = await import("./parse_run_options.ts");
    const raw = Object.fromEntries(FLAGS.map(({ name }) => [name, options[camel(name)]]));
    // `agent --socket PATH run` means the same as `agent run --socket PATH`.
    const socket = raw.socket ?? program.opts<{ socket?: string }>().socket;
    const flags = new FlagValues({ ...raw, socket }, context.env);
    const runOptions = runOptionsOf(flags, {
      env: context.env,
      // Looked for only where no flag names it: where there is none, that is an error.
      get socketPath() {
        return socketOf({});
      },
    });
    if (options.printConfig) {
      const { printSettings } = await import("./print_config.ts");
      const json = options.json ?? program.opts<{ json?: boolean }>().json;
      return printSettings(runOptions, flags, json === true);
    }
    // The daemon's code is loaded here alone: client commands start without it.
    const { startAgent } = await import("../daemon/daemon.ts");
    context.exit = await startAgent(runOptions);
  });
}

function optionOf(flag: Flag): Option {
  const dots = flag.takes === "several" ? "…" : "";
  const value = flag.takes === "nothing" ? "" : ` <${flag.value}${dots}>`;
  const option = new Option(`--${flag.name}${value}`, flag.help).helpGroup(`${flag.section}:`);
  // For help and completions; a wrong one is refused in the words that are its twin's, too.
  if (flag.words.length > 0) option.argChoices = [...flag.words];
  if (flag.takes === "several") {
    option.argParser((text: string, before: string[] = []) => [...before, text]);
  }
  return option;
}

function camel(name: string): string {
  return name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}

const DESCRIPTION =
  "Holds leases for this host and guards writes of local processes over a socket.\n\n" +
  "With --nats, nodes that name the same servers and bucket share the stores: each is written by " +
  "one node at a time. With --standalone there is no coordinator: every store is this host's.";

const HELP = `
Durations are written 500ms, 15s, 2m, 1h. Each flag has a twin in the
environment, and the flag wins: ${twinOf("nats")} for --nats,
${twinOf("lock-path")} for --lock-path; several values are separated by
commas, a switch is 1 or 0. Credentials come from files, never from the command
line; where none are named, zit-agent.creds is used if systemd passes it
(LoadCredential=).

A node's name is 1 to 128 printable ASCII characters without blanks; the text of
--address, 1 to 1,024 with none at its ends; a bucket's name, 1 to 244 of A-Z
a-z 0-9 _ -.

The socket is /run/zit-agent/agent.sock for root and for the service, and
$XDG_RUNTIME_DIR/zit-agent/agent.sock for others; where that is not set, name
the socket. Its directory is made if it is missing, as --state-dir is, but not
that of a --socket that is named; that of a store's lock file must be there.

Examples:
  $ agent run --node host-1 --nats n1:4222,n2:4222,n3:4222 --creds agent.creds
  $ agent run --standalone "a single host" --lock-path /srv/{store}/lease.lock
  $ agent run --node host-1 --nats nats://n1:4222 --print-config

Signals:
  TERM, INT  stop granting, let grants finish (--drain), release the leases, end
  HUP        read credentials and the file of --stores again

Exit statuses:
  0   stopped cleanly
  64  used wrongly: neither or both of --nats and --standalone, a wrong value
  73  the socket or the state directory cannot be used, or another agent uses
      them
  78  the setup contradicts the flags, which may be mended without them: the
      bucket's TTL, a server's version with known faults, a file of --stores
      that is missing or wrong, a limit of open files below 160`;
