/**
 * The program: everything starts here.
 * @module
 */
import { EXEC_LOCKED_COMMAND } from "./cli/guard/exec_locked_command.ts";
import { WATCHDOG_COMMAND } from "./cli/guard/watchdog_state.ts";

const argv = process.argv.slice(2);

if (argv[0] === WATCHDOG_COMMAND) {
  const { runWatchdog } = await import("./cli/guard/watchdog.ts");
  await runWatchdog();
  process.exit(0);
}

// Its help is the program's.
if (argv[0] === EXEC_LOCKED_COMMAND && argv[1] !== "--help" && argv[1] !== "-h") {
  const { execLocked } = await import("./cli/guard/exec_locked.ts");
  process.exit(await execLocked(argv.slice(1), process.env));
}

const { runProgram } = await import("./cli/program.ts");
// Not by process.exitCode: nothing that is still open may hold up the end of a command.
process.exit(await runProgram(argv, { env: process.env, exit: 0 }));
