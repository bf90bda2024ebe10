/** `agent leases`: all stores that the agent holds or follows. */
import type { Command } from "commander";
import type { Connection, LeaseInfo } from "../client/mod.ts";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent leases`. */
export function defineLeases(program: Command, _context: Context): void {
  const command = program.command("leases")
    .summary("the stores that this agent holds or follows")
    .description("Lists the stores that this agent holds or follows, by code.")
    .option("--prefix <text>", "only codes that start with it")
    .addHelpText("after", HELP);
  clientOptions(command).action(async () => {
    const { withAgent } = await import("./agent.ts");
    const { print, printJson, table } = await import("./output.ts");
    const options = clientOptionsOf(command);
    const { prefix } = command.opts<{ prefix?: string }>();
    const leases = await withAgent(options, (agent) => allLeases(agent, prefix));
    if (options.json) return printJson({ leases });
    if (leases.length === 0) return;
    const rows = leases.map((each) => [
      each.store,
      each.held ? "held" : each.state,
      each.node ?? "-",
      each.address ?? "-",
      each.epoch === null ? "-" : String(each.epoch),
      each.since ?? "-",
    ]);
    for (const line of table([["STORE", "STATE", "NODE", "ADDRESS", "EPOCH", "SINCE"], ...rows])) {
      print(line);
    }
  });
}

/** Page by page: an agent may hold tens of thousands. */
async function allLeases(agent: Connection, prefix: string | undefined): Promise<LeaseInfo[]> {
  const leases: LeaseInfo[] = [];
  let after: string | undefined;
  while (true) {
    const page = await agent.call("leases", { prefix, after });
    leases.push(...page.leases);
    if (page.next === null) return leases;
    after = page.next;
  }
}

const HELP = `
STATE is held (this node may write), self (this node's, but in its grace), other or free.

Examples:
  $ agent leases
  $ agent leases --prefix team-a/ --json | jq -r '.leases[] | select(.held) | .store'

Exit statuses:
  0  answered   64  used wrongly   69  no agent`;
