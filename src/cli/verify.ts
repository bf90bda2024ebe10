/** `agent verify`: the commit-point check, inside a guarded command. */
import type { Command } from "commander";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent verify`. */
export function defineVerify(program: Command, context: Context): void {
  const command = program.command("verify")
    .summary("prove that a command's lease still holds")
    .description(DESCRIPTION)
    .usage("[STORE] [options]")
    .argument("[store]", "the store's code (default: the guarded command's)")
    .addHelpText("after", HELP);
  clientOptions(command).action(async (storeArgument: string | undefined) => {
    const { checkStore, withAgent } = await import("./agent.ts");
    const { Failure, usage } = await import("./failure.ts");
    const { printJson, say } = await import("./output.ts");
    const { KINDS } = await import("../lease/errors.ts");
    const options = clientOptionsOf(command);
    const { ZIT_LEASE_TOKEN: token, ZIT_LEASE_STORE, ZIT_LEASE_UNGUARDED } = context.env;
    if (!token && ZIT_LEASE_UNGUARDED) {
      say(`nothing to verify: this runs unguarded (${ZIT_LEASE_UNGUARDED})`);
      if (options.json) printJson({ unguarded: ZIT_LEASE_UNGUARDED });
      return;
    }
    if (!token) {
      throw new Failure(
        "There is no grant to verify: ZIT_LEASE_TOKEN is not set. Call this inside `agent guard`.",
        KINDS.no_token.exit,
      );
    }
    const store = storeArgument ?? ZIT_LEASE_STORE;
    if (!store) throw usage("Name the store: ZIT_LEASE_STORE is not set.");
    checkStore(store);
    const proof = await withAgent(options, (agent) => agent.call("verify", { token, store }));
    if (options.json) printJson(proof);
  });
}

const DESCRIPTION =
  "Proves to the coordinator that the lease of the guarded command around still holds. Call it " +
  "right before a write becomes visible: a paused process may wake up long after its lease went.";

const HELP = `
Takes ZIT_LEASE_TOKEN, ZIT_LEASE_STORE and ZIT_AGENT_SOCKET from the
environment, where \`agent guard\` put them. In a command that runs --unguarded
there is nothing to prove: exit 0, and a message that says so.

Example:
  $ agent guard my-project -- sh -c 'prepare && agent verify && publish'

Exit statuses:
  0   the lease holds
  69  coordinator not reachable
  77  no such grant, or not for this store
  79  the lease went`;
