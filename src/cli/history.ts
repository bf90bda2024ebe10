/** `agent history`: who held a store. */
import type { Command } from "commander";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent history`. */
export function defineHistory(program: Command, _context: Context): void {
  const command = program.command("history")
    .summary("who held a store, newest first")
    .description("Lists the last tenures of a store, newest first, as the coordinator keeps them.")
    .usage("STORE [options]")
    .argument("<store>", "the store's code")
    .addHelpText("after", HELP);
  clientOptions(command).action(async (store: string) => {
    const { checkStore, withAgent } = await import("./agent.ts");
    const { historyRows } = await import("./history_text.ts");
    const { print, printJson, say, table } = await import("./output.ts");
    const options = clientOptionsOf(command);
    checkStore(store);
    const history = await withAgent(options, (agent) => agent.call("history", { store }));
    if (options.json) return printJson(history);
    if (history.tenures.length === 0) {
      return say(`no tenure of ${store} is on record: no node has held it since records are kept`);
    }
    const { epoch } = await withAgent(options, (agent) => agent.call("holder", { store }));
    const rows = historyRows(history.tenures, { nowMs: Date.now(), holdsEpoch: epoch });
    for (const line of table(rows)) print(line);
  });
}

const HELP = `
AGE    since it was acquired, by this host's clock
HELD   how long; of a tenure that was not released, only that the next began so
       much later
END    holds it now; why it was released (idle, stepdown, shutdown, unusable:
       its lock file was of no use); or not released: its node was killed, lost
       the lease, or gave it up in its grace
GRACE  owed for the tenure before it, before its first grant; as records tell:
       none         that one was released
       owed         another node held it, and did not release
       again        by the same run of the agent, not released: none, unless
                    another was seen to hold it in between
       restart      by the same node, not released: none if the agent was back
                    before its lease ran out and nothing that it had granted
                    still ran, else owed
       stale epoch  that one has a newer epoch: no write is granted
       not known    none is on record: the first, or before records were kept
       What is left of an earlier grace is owed besides, and a whole one after a
       program that keeps no records, which is not listed here.

Examples:
  $ agent history my-project
  $ agent history my-project --json | jq -r '.tenures[0].node'

Exit statuses:
  0  answered   64  used wrongly   69  agent or coordinator not reachable`;
