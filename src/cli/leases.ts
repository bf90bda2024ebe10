/** `agent leases`: all stores that the agent holds or follows. */
import { Option } from "commander";
import type { Command } from "commander";
import type { Connection, LeaseInfo, ListedLease } from "../client/mod.ts";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent leases`. */
export function defineLeases(program: Command, _context: Context): void {
  const command = program.command("leases")
    .summary("the stores that this agent holds or follows")
    .description("Lists the stores that this agent holds or follows, by code.")
    .option("--prefix <TEXT>", "only codes that start with it")
    .addOption(
      new Option("--state <STATE>", "only those in this state")
        .choices(["held", "self", "other", "free"]),
    )
    .option("--node <NAME>", "only those that this node holds")
    .addHelpText("after", HELP);
  clientOptions(command).action(async () => {
    const { withAgent } = await import("./agent.ts");
    const { print, printJson, say, table } = await import("./output.ts");
    const options = clientOptionsOf(command);
    const { prefix, state, node } = command.opts<Filters>();
    const { all, connected } = await withAgent(options, async (agent) => {
      const { mode, coordinator } = await agent.call("status", {});
      const all = await allLeases(agent, prefix);
      return { all, connected: coordinator.connected || mode === "standalone" };
    });
    const leases = all.filter((each) =>
      (state === undefined || stateOf(each) === state) && (node === undefined || each.node === node)
    );
    if (options.json) return printJson({ leases });
    if (leases.length === 0) {
      return say(
        prefix === undefined && state === undefined && node === undefined
          ? "no stores: this agent tries to hold those that somebody asks for"
          : "no such stores among those that this agent holds or follows",
      );
    }
    const steppedDown = leases.some((each) => each.stepped_down_until !== undefined);
    const header = ["STORE", "STATE", "NODE", "ADDRESS", "EPOCH", "SINCE"];
    const rows = leases.map((each) => [
      each.store,
      stateOf(each),
      each.node ?? "-",
      each.address ?? "-",
      each.epoch === null ? "-" : String(each.epoch),
      each.since ?? "-",
      ...steppedDown ? [each.stepped_down_until ?? "-"] : [],
    ]);
    if (steppedDown) header.push("STEPPED DOWN UNTIL");
    for (const line of table([header, ...rows])) print(line);
    if (!connected) say("the coordinator cannot be reached: what other nodes hold is not known");
  });
}

interface Filters {
  readonly prefix?: string;
  readonly state?: string;
  readonly node?: string;
}

function stateOf({ held, state }: LeaseInfo): string {
  return held ? "held" : state;
}

/** Page by page: an agent may hold tens of thousands. */
export async function allLeases(agent: Connection, prefix?: string): Promise<ListedLease[]> {
  const leases: ListedLease[] = [];
  let after: string | undefined;
  while (true) {
    const page = await agent.call("leases", { prefix, after });
    leases.push(...page.leases);
    if (page.next === null) return leases;
    after = page.next;
  }
}

const HELP = `
STATE is held (this node may write), self (this node's, but in its grace or
being given up), other or free. Where this node has stepped down from a store,
STEPPED DOWN UNTIL tells until when it leaves it alone.

Examples:
  $ agent leases
  $ agent leases --state self            ours, but not to be written yet
  $ agent leases --node host-2
  $ agent leases --prefix team-a/ --json | jq -r '.leases[].store'

Exit statuses:
  0  answered   64  used wrongly   69  no agent`;
