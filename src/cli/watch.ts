/** `agent watch`: follows who holds stores. */
import type { Command } from "commander";
import type { Notification } from "../client/mod.ts";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent watch`. */
export function defineWatch(program: Command, context: Context): void {
  const command = program.command("watch")
    .summary("follow who holds stores")
    .description("Prints the present state of stores, then a line for each change, until ended.")
    .usage("[STORE…] [options]")
    .argument("[store...]", "the stores' codes (default: all that the agent knows)")
    .addHelpText("after", HELP);
  clientOptions(command).action(async (stores: string[]) => {
    const { checkStore, withAgent } = await import("./agent.ts");
    const { EXIT, Failure } = await import("./failure.ts");
    const { isRead, painter, print, printJson, useColour } = await import("./output.ts");
    const options = clientOptionsOf(command);
    stores.forEach(checkStore);
    // At a terminal changes come while somebody looks: when, and in colour.
    const live = process.stdout.isTTY === true;
    const paint = painter(useColour(context.env, live));
    const show = ({ subscription: _, ...lease }: LeaseChange): void => {
      if (options.json) return printJson(lease);
      const state = lease.held ? "held" : lease.state;
      const time = live ? [paint("dim", new Date().toTimeString().slice(0, 8)), " "] : [];
      const where = [lease.node, lease.address].map((each) => each ? ` ${each}` : "").join("");
      print(...time, `${lease.store} `, paint(STYLES[state], state), where);
    };
    await withAgent(options, async (agent) => {
      const unread = Promise.withResolvers<void>();
      agent.onNotification((notification) => {
        if (notification.method !== "lease") return;
        try {
          show(notification.params);
          if (!isRead()) unread.resolve();
        } catch (error) {
          unread.reject(error);
        }
      });
      const watching = async () => {
        await agent.call("watch", stores.length === 0 ? {} : { stores });
        await agent.closed;
        const message = "The agent closed the connection; start the watch again";
        throw new Failure(message, EXIT.unavailable);
      };
      await Promise.race([watching(), unread.promise]);
    }, Infinity);
  });
}

type LeaseChange = Extract<Notification, { method: "lease" }>["params"];

/** What each state looks like at a terminal. */
const STYLES = {
  held: "green",
  self: "yellow",
  other: "dim",
  free: "bold",
} as const satisfies Record<
  string,
  string
>;

const HELP = `
Watched stores are stores that the agent tries to hold.

Examples:
  $ agent watch my-project
  $ agent watch --json | jq -r 'select(.held) | .store'

Exit statuses:
  0   nobody reads the output any more   69  no agent, or it went away
  64  used wrongly                       74  the output cannot be written`;
