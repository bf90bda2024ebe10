/** The help of `agent exec-locked`, which itself runs without all this: see `main.ts`. */
import type { Command } from "commander";
import type { Context } from "./context.ts";
import { EXEC_LOCKED_COMMAND } from "./guard/exec_locked_command.ts";

/** Defines `agent exec-locked`. */
export function defineExecLocked(program: Command, _context: Context): void {
  program.command(EXEC_LOCKED_COMMAND, { hidden: true })
    .summary("become a command that holds the lock of a grant")
    .description(DESCRIPTION)
    .usage("[--report N] -- COMMAND [ARG…]")
    .argument("<command...>", "what to become, after `--`")
    .option("--report <N>", "tell what goes wrong on descriptor N, in JSON, not on stderr")
    .addHelpText("after", HELP)
    .action(async () => {
      const { usage } = await import("./failure.ts");
      // Its arguments are the last of the process, and it takes no others.
      throw usage(`Put no options before \`${EXEC_LOCKED_COMMAND}\`.`);
    });
}

const DESCRIPTION =
  "For clients whose runtime cannot receive descriptors. Becomes COMMAND, which then holds the lock " +
  "of a grant that the client has; to run a command under a lease there is `agent guard`.";

const HELP = `
The client asks the agent for a guard with pass_lock, sets ZIT_LEASE_STORE,
ZIT_LEASE_TOKEN and ZIT_AGENT_SOCKET to what it was granted, and starts COMMAND
by this. COMMAND is the same process and gets the lock as descriptor
ZIT_LEASE_LOCK_FD. To end it in time is the client's business. More is in the
description of the protocol, docs/protocol.md.

On descriptor N stands a line with the error, or {"becomes": NAME} right before
it becomes COMMAND, which does not get N.

Example, in a client that was granted a guard:
  agent exec-locked --report 3 -- zit add file.txt

Exit statuses, besides COMMAND's own (126 and 127 as shells do):
  64  used wrongly, or the grant was asked for without pass_lock
  69  agent or coordinator not reachable
  75  another node holds the store
  77  no such grant, or not for this store
  78  the agent is too old to pass a lock
  79  the lease went`;
