/** `agent guard`: runs a command while this node holds a store's lease. */
import { Command } from "commander";
import { durationOption } from "./options.ts";
import type { Context } from "./context.ts";

interface GuardOptions {
  wait?: number;
  waitLease?: boolean;
  shared?: boolean;
  killAfter?: number;
  unguarded?: string;
}

/** Defines `agent guard`. */
export function defineGuard(program: Command, context: Context): void {
  const command = program.command("guard")
    .summary("run a command that writes to a store")
    .description(DESCRIPTION)
    .usage("STORE [options] -- COMMAND [ARG…]")
    .argument("<store>", "the store's code")
    // Told by us: what stands there was mostly meant to be run.
    .allowExcessArguments()
    .addOption(durationOption("--wait <DUR>", "wait so long for the turn, the lock and the grace"))
    .option("--wait-lease", "within --wait, wait even while another node holds the lease")
    .option("--shared", "may overlap other --shared guards of this store on this host")
    .addOption(
      durationOption(
        "--kill-after <DUR>",
        "time between SIGTERM and SIGKILL when the lease goes (default: a third of its TTL; at most half)",
      ),
    )
    .option("--unguarded <REASON>", "run with no lease and no agent; why that is right")
    .option("--socket <PATH>", "the agent's socket")
    .addHelpText("after", HELP);
  const commandLengthOf = cutAtDashes(command);
  command.action(async (store: string, options: GuardOptions) => {
    const commandLength = await commandLengthOf();
    const { guard } = await import("./guard/guard.ts");
    context.exit = await guard({
      store,
      commandLength,
      socket: program.opts<{ socket?: string }>().socket,
      ...options,
      env: context.env,
    });
  });
}

/**
 * Has `command` see only what stands before the first `--`. What stands behind it is what to run, all of
 * it and nothing else: neither an option that takes a value, nor a word too many, nor a `--` that was
 * left out may change what is run, or how. Returns how many words it is, or throws why it is none.
 */
function cutAtDashes(command: Command): () => Promise<number> {
  let behind: readonly string[] | null = null;
  command.parseOptions = (args) => {
    const dashes = args.indexOf("--");
    behind = dashes < 0 ? null : args.slice(dashes + 1);
    return Command.prototype.parseOptions.call(command, dashes < 0 ? args : args.slice(0, dashes));
  };
  return async () => {
    const { usage } = await import("./failure.ts");
    const [, word] = command.args;
    if (behind === null) throw usage("Put `--` before the command to run. See `agent help guard`.");
    if (word !== undefined) {
      throw usage(`Put one store before \`--\`, and the command behind it: "${word}" is neither.`);
    }
    if (behind.length === 0) throw usage("Put the store before `--`, and the command behind it.");
    return behind.length;
  };
}

const DESCRIPTION =
  "Runs COMMAND once this node holds the store's lease, nobody else on this host writes to the " +
  "store, and the store's lock file is locked. The exit status is COMMAND's own.";

const HELP = `
COMMAND runs in a process group of its own and keeps stdin, stdout, stderr and
the terminal; signals go through to it. When its lease goes, its processes get
SIGTERM in time and SIGKILL at the deadline, and the exit status is 79; so they
do if \`agent guard\` itself is killed. Once asked to end, they are ended, even
if the lease is renewed after all. When COMMAND ends but leaves processes
running, these keep the lock (the store stays busy on this host), but no lease.

Not found, and so not ended: when \`agent guard\` is killed as well, a process
that left its cgroup (its process group, with no cgroup v2 that the caller may
use), its parents and its environment, and closed the lock (or runs under
--shared); and what others run for COMMAND (systemd-run, containers, other
hosts). Not ended without a cgroup: a process of another user, which the caller
may not signal; it is named.

COMMAND's environment:
  ZIT_LEASE_STORE      the store
  ZIT_LEASE_NODE       this node's name
  ZIT_LEASE_EPOCH      fencing token: grows each time the store changes hands
  ZIT_LEASE_TOKEN      for \`agent verify\`, right before a write becomes visible
  ZIT_LEASE_LOCK_FD    the descriptor that holds the lock; leave it open
  ZIT_LEASE_GUARDS     marks by which a guard finds its processes
  ZIT_LEASE_UNGUARDED  why it runs unguarded: with --unguarded, and none of the
                       others; under a standalone agent, and all of the others
  ZIT_AGENT_SOCKET     the agent's socket

Examples:
  $ agent guard my-project -- zit add file.txt
  $ agent guard my-project --wait 30s -- sh -c 'make && agent verify && publish'
  $ agent guard my-project --wait-lease --wait 2m -- nightly-job

Exit statuses, besides COMMAND's own (128+n when signal n ended it; 126 and 127
as shells do):
  64  used wrongly
  66  no such store directory
  69  agent or coordinator not reachable
  75  another node holds it, not your turn, grace, agent stopping
  76  the disk has seen a newer epoch
  77  not permitted
  78  the agent's setup contradicts the coordinator's
  79  the lease went while COMMAND ran, and it was stopped; or it went before
      COMMAND was started (this guard itself was stopped), and nothing was run`;
