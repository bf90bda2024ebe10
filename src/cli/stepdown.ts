/** `agent stepdown`: hands stores over to other nodes. */
import type { Command } from "commander";
import { clientOptions, clientOptionsOf, durationOption } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent stepdown`. */
export function defineStepdown(program: Command, context: Context): void {
  const command = program.command("stepdown")
    .summary("release stores to other nodes for a while")
    .description(
      "Lets running grants finish, releases the leases, and does not acquire them again for a while. " +
        "The newest step-down counts.",
    )
    .usage("STORE|--all [options]")
    .argument("[store]", "the store's code")
    .option("--all", "all stores, also those that this node does not hold yet")
    .addOption(
      durationOption("--for <DUR>", "how long not to acquire again (default: the TTL; 0s ends it)"),
    )
    .addHelpText("after", HELP);
  clientOptions(command).action(async (store: string | undefined) => {
    const { checkStore, withAgent } = await import("./agent.ts");
    const { EXIT, usage } = await import("./failure.ts");
    const { print, printJson } = await import("./output.ts");
    const { showProgress } = await import("./progress.ts");
    const { stepdownLines, whoIsInTheWay } = await import("./stepdown_text.ts");
    const options = clientOptionsOf(command);
    const { all, for: forMs } = command.opts<{ all?: boolean; for?: number }>();
    if ((store === undefined) === (all === undefined)) {
      throw usage("Name one store, or say --all.");
    }
    if (store !== undefined) checkStore(store);
    // A question first: an agent that does not answer this one does not step down, either.
    const { ttl_ms: ttlMs, mode } = await withAgent(options, (agent) => agent.call("status", {}));
    const asked = await withAgent(options, async (agent) => {
      const stop = showProgress(() => whoIsInTheWay(agent, store ?? null), context.env);
      try {
        return await agent.call("stepdown", {
          ...(store === undefined ? { all: true } : { store }),
          ...(forMs === undefined ? {} : { for_ms: forMs }),
        });
      } finally {
        stop();
      }
    }, Infinity);
    if (options.json) printJson(asked);
    else {
      const lines = stepdownLines(asked, { forMs: forMs ?? ttlMs, alone: mode === "standalone" });
      for (const line of lines) print(line);
    }
    context.exit = asked.remaining === 0 ? EXIT.ok : EXIT.no;
  });
}

const HELP = `
Examples:
  $ agent stepdown my-project --for 5m
  $ agent stepdown --all --for 30m      before maintenance of this host
  $ agent stepdown --all --for 0s       and back after it

The newest counts: it makes an earlier one shorter or longer, and --for 0s ends
it. --all takes the place of all, also of those of single stores. agent status
and agent leases tell what is in force.

Exit statuses:
  0   released
  1   not all: kept until their grants end, which took too long, lost, or left
      to age out
  64  used wrongly
  69  no agent
  77  only administrators may (--admin-uid of agent run)`;
