/**
 * Starting a granted command.
 * @module
 */
import { bootTimeMs } from "../../sys/boot_time.ts";
import type { Cgroup } from "../../sys/cgroup.ts";
import { startJobIf } from "../../sys/job.ts";
import { cannotRun } from "./command.ts";
import type { GuardedCommand } from "./command.ts";
import { freeDescriptor } from "./descriptor.ts";
import { guardedEnvironment, restoreDescriptorLimit } from "./environment.ts";
import type { LockedGrant } from "./locked_grant.ts";
import { mayRun } from "./plan.ts";
import type { Hold } from "./plan.ts";
import { signedMark } from "./sweep.ts";

/** What is started, and where. */
export interface StartOptions {
  readonly command: GuardedCommand;
  readonly grant: LockedGrant;
  readonly socket: string;
  readonly mark: string;
  readonly cgroup: Cgroup | null;
  /** The lease under which it is started. */
  readonly hold: Hold;
}

/** A command that was started. */
export interface Started {
  /** Its process group. */
  readonly group: number;
  /** Null where it is in none of its own. */
  readonly cgroup: Cgroup | null;
}

/**
 * Starts the command if it may run now by the clock, else returns null.
 *
 * @throws {Failure} where it cannot be run.
 */
export function startGuarded(options: StartOptions): Started | null {
  const { command, mark, cgroup, hold } = options;
  const { lockFd } = options.grant;
  const as = freeDescriptor();
  restoreDescriptorLimit();
  try {
    const env = guardedEnvironment(
      variablesFor(options, as),
      signedMark(mark, options.grant.result.token),
    );
    const pass = lockFd === null ? null : { fd: lockFd, as };
    // Entering a cgroup takes a while, and so does preparing the start: the clock is looked at after both.
    const start = () => startJobIf({ ...command, env, pass }, () => mayRun(hold, bootTimeMs()));
    const { result: group, inside } = cgroup?.around(start) ?? { result: start(), inside: false };
    return group === null ? null : { group, cgroup: inside ? cgroup : null };
  } catch (error) {
    throw cannotRun(command, error);
  }
}

function variablesFor({ grant, socket }: StartOptions, lockFd: number): Record<string, string> {
  const { result } = grant;
  return {
    ZIT_LEASE_STORE: result.store,
    ZIT_LEASE_EPOCH: String(result.epoch),
    ZIT_LEASE_TOKEN: result.token,
    ZIT_LEASE_NODE: result.node,
    ...(grant.lockFd === null ? {} : { ZIT_LEASE_LOCK_FD: String(lockFd) }),
    ...(result.unguarded === null ? {} : { ZIT_LEASE_UNGUARDED: result.unguarded }),
    ZIT_AGENT_SOCKET: socket,
  };
}
