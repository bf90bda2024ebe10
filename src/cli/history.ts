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
END    holds it now; why it was released (idle, stepdown, shutdown); or not
       released: its node was killed, or lost the lease
GRACE  before its first grant: none, because the holder before released; owed;
       restart, of the same node: owed only while what it had granted before
       still ran; stale epoch: refused; not known: no holder before is on record

Examples:
  $ agent history my-project
  $ agent history my-project --json | jq -r '.tenures[0].node'

Exit statuses:
  0  answered   64  used wrongly   69  agent or coordinator not reachable`;
