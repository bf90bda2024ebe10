/** `agent held`: may this node write? */
import type { Command } from "commander";
import { clientOptions, clientOptionsOf } from "./options.ts";
import type { Context } from "./context.ts";

/** Defines `agent held`. */
export function defineHeld(program: Command, context: Context): void {
  const command = program.command("held")
    .summary("whether this node holds stores")
    .description(
      "Tells whether this node holds each store now, past any grace. Asks no other host.",
    )
    .usage("STORE… [options]")
    .argument("<store...>", "the stores' codes")
    .addHelpText("after", HELP);
  clientOptions(command).action(async (stores: string[]) => {
    const { checkStore, withAgent } = await import("./agent.ts");
    const { print, printJson } = await import("./output.ts");
    const { EXIT } = await import("./failure.ts");
    const options = clientOptionsOf(command);
    stores.forEach(checkStore);
    const { held } = await withAgent(options, (agent) => agent.call("held", { stores }));
    const answers = stores.map((store) =>
      [
        store,
        Object.hasOwn(held as object, store) &&
        (held as Record<string, boolean>)[store] === true,
      ] as const
    );
    if (options.json) printJson({ held: Object.fromEntries(answers) });
    else for (const [store, yes] of answers) print(`${store}: ${yes ? "held" : "not held"}`);
    context.exit = answers.every(([, yes]) => yes) ? EXIT.ok : EXIT.no;
  });
}

const HELP = `
Asking once makes the agent try to hold the store from then on.

Examples:
  $ agent held my-project && echo "writes go here"
  $ agent held project-a project-b --json

Exit statuses:
  0   held (all of them)      64  used wrongly
  1   not held (at least one) 69  no agent`;
