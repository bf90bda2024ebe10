/** `agent history`: who held a store. */
import type { Command } from "commander";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent history`. */
export function defineHistory(program: Command, _context: Context): void {
  const command = program.command("history")
    .summary("who held a store, newest first")
    .description("Lists the last tenures of a store, newest first, as the coordinator keeps them.")
    .argument("<store>", "the store's code")
    .addHelpText("after", HELP);
  clientOptions(command).action(async (store: string) => {
    const { checkStore, withAgent } = await import("./agent.ts");
    const { print, printJson, say, table } = await import("./output.ts");
    const options = clientOptionsOf(command);
    checkStore(store);
    const history = await withAgent(options, (agent) => agent.call("history", { store }));
    if (options.json) return printJson(history);
    if (history.tenures.length === 0) {
      return say(`no tenure of ${store} is on record: no node has held it since records are kept`);
    }
    const rows = history.tenures.map((each) => [
      String(each.epoch),
      each.node,
      each.address ?? "-",
      each.acquired_at,
      each.released_at ?? "-",
      each.reason ?? "-",
    ]);
    for (
      const line of table([["EPOCH", "NODE", "ADDRESS", "ACQUIRED", "RELEASED", "REASON"], ...rows])
    ) print(line);
  });
}

const HELP = `
A tenure without RELEASED is the present one, or one that was not ended cleanly.

Exit statuses:
  0  answered   64  used wrongly   69  agent or coordinator not reachable`;
