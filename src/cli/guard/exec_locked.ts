/**
 * `agent exec-locked`: becomes a command that holds the lock of a grant, for clients whose runtime
 * cannot receive descriptors. The client has the grant, asked for with `pass_lock`, and tells which by
 * the environment of the guard. The lock is the command's own from before its first instruction, so
 * neither the client's end nor the agent's frees it.
 *
 * Nothing of this process is left: number, group, session, parent and exit status are the command's.
 * What the grant's client does to a command that it starts itself, it does to this one.
 * @module
 */
import { closeSync, writeSync } from "node:fs";
import { openSocket } from "../../client/connect.ts";
import { AgentError, MisconfiguredError } from "../../client/errors.ts";
import { reasonOf } from "../../sys/errno.ts";
import { becomeProgram } from "../../sys/job.ts";
import { moveDescriptor } from "../../sys/process.ts";
import { EXIT, Failure, usage } from "../failure.ts";
import { say } from "../output.ts";
import { cannotRun, commandOf, findCommand, type GuardedCommand } from "./command.ts";
import { freeDescriptor } from "./descriptor.ts";
import { guardedEnvironment, restoreDescriptorLimit } from "./environment.ts";
import { ANSWER_MS, requestLocked } from "./locked_grant.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** What the guard's environment must tell. */
const NEEDED = ["ZIT_LEASE_STORE", "ZIT_LEASE_TOKEN", "ZIT_AGENT_SOCKET"] as const;

/**
 * Becomes the command after `--`. Returns an exit status only if it does not: what went wrong goes to
 * stderr, or with `--report N` as an error object of the protocol to descriptor N, which the
 * command does not get. Right before it becomes the command it says so there: who started it can tell
 * it from a program that knows nothing of all this.
 */
export async function execLocked(args: readonly string[], env: Env): Promise<number> {
  let report: number | null = null;
  try {
    const parsed = parse(args);
    report = parsed.report === null ? null : takeReport(parsed.report);
    return await become(parsed.commandLength, env, report);
  } catch (error) {
    return tell(error, report);
  }
}

function parse(args: readonly string[]): { commandLength: number; report: number | null } {
  const dashes = args.indexOf("--");
  const [flag, number, ...more] = args.slice(0, Math.max(0, dashes));
  const report = flag === undefined ? null : Number(number);
  const right = flag === undefined || (flag === "--report" && /^\d{1,9}$/.test(number ?? ""));
  const commandLength = args.length - dashes - 1;
  if (dashes < 0 || commandLength === 0 || !right || more.length > 0) {
    throw usage(
      "Give `agent exec-locked [--report N] -- COMMAND [ARG…]`. See `agent help exec-locked`.",
    );
  }
  return { commandLength, report };
}

/** Out of the way of the descriptors that the command gets. */
function takeReport(fd: number): number {
  try {
    return moveDescriptor(fd);
  } catch (error) {
    throw usage(`Cannot report on descriptor ${fd}: ${reasonOf(error)}. Open it before the start.`);
  }
}

async function become(commandLength: number, env: Env, report: number | null): Promise<never> {
  const command = findCommand(commandLength, env.PATH);
  const [store, token, socket] = NEEDED.map((name) => {
    const value = env[name];
    if (!value) throw usage(`${name} is not set: run this under a guard asked for with pass_lock.`);
    return value;
  }) as [string, string, string];
  const { lockFd } = await requestLocked(await openSocket({ socket }), {
    method: "verify",
    params: { token, store, pass_lock: true },
    path: socket,
    withinMs: ANSWER_MS,
  });
  if (lockFd === null) {
    throw new MisconfiguredError(
      `The agent at ${socket} is too old to pass a lock; update it, or go without (passLock: false)`,
    );
  }
  if (report !== null) write(report, { becomes: commandOf(command) });
  return run(command, lockFd, env);
}

function run(command: GuardedCommand, lockFd: number, env: Env): never {
  const as = freeDescriptor();
  const leased = Object.entries(env).filter(([name]) => /^ZIT_(?:LEASE_|AGENT_SOCKET$)/.test(name));
  const variables = { ...Object.fromEntries(leased), ZIT_LEASE_LOCK_FD: String(as) };
  restoreDescriptorLimit();
  try {
    return becomeProgram({
      ...command,
      env: guardedEnvironment(variables as Record<string, string>, null),
      pass: { fd: lockFd, as },
    });
  } catch (error) {
    closeSync(lockFd);
    throw cannotRun(command, error);
  }
}

function tell(error: unknown, report: number | null): number {
  const { message } = error as Error;
  const exit = error instanceof AgentError || error instanceof Failure ? error.exit : EXIT.software;
  try {
    if (report === null) say(message);
    else write(report, reportOf(error, exit));
  } catch {
    say(message); // nobody is told of it in the way that was asked for
  }
  return exit;
}

/** @throws {Failure} if the descriptor cannot be written. */
function write(report: number, line: Record<string, unknown>): void {
  try {
    writeSync(report, `${JSON.stringify(line)}\n`);
  } catch (error) {
    throw usage(`Cannot write to the descriptor of --report: ${reasonOf(error)}.`);
  }
}

/** An error of the protocol as it came; one of our own with its exit status instead. */
function reportOf(error: unknown, exit: number): Record<string, unknown> {
  const { message } = error as Error;
  if (!(error instanceof AgentError) || error.kind === "internal") return { message, exit };
  return { code: error.code, message, data: { kind: error.kind } };
}
