/** `agent holder`: where do writes of a store go? */
import type { Command } from "commander";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent holder`. */
export function defineHolder(program: Command, _context: Context): void {
  const command = program.command("holder")
    .summary("which node holds a store")
    .description("Tells which node holds a store, as far as this host's agent knows.")
    .usage("STORE [options]")
    .argument("<store>", "the store's code")
    .addHelpText("after", HELP);
  clientOptions(command).action(async (store: string) => {
    const { checkStore, withAgent } = await import("./agent.ts");
    const { print, printJson } = await import("./output.ts");
    const options = clientOptionsOf(command);
    checkStore(store);
    const holder = await withAgent(options, (agent) => agent.call("holder", { store }));
    if (options.json) return printJson(holder);
    const details = [
      holder.address,
      holder.epoch === null ? null : `epoch ${holder.epoch}`,
      holder.since === null ? null : `since ${holder.since}`,
    ].filter((each) => each !== null).join(", ");
    const node = holder.state === "self" ? `this node, ${holder.node}` : holder.node;
    const text = holder.state === "free" ? "held by nobody" : `held by ${node}`;
    print(`${store}: ${text}${details && ` (${details})`}`);
  });
}

const HELP = `
Examples:
  $ agent holder my-project
  $ agent holder my-project --json | jq -r .address

Exit statuses:
  0  answered   64  used wrongly   69  agent or coordinator not reachable`;
