/**
 * The program: everything starts here.
 * @module
 */
import { WATCHDOG_COMMAND } from "./cli/guard/watchdog_state.ts";

const argv = process.argv.slice(2);

if (argv[0] === WATCHDOG_COMMAND) {
  const { runWatchdog } = await import("./cli/guard/watchdog.ts");
  await runWatchdog();
  process.exit(0);
}

const { runProgram } = await import("./cli/program.ts");
// Not by process.exitCode: nothing that is still open may hold up the end of a command.
process.exit(await runProgram(argv, { env: process.env, exit: 0 }));
