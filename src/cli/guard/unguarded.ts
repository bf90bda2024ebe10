/**
 * `agent guard --unguarded REASON`: the same process handling, with no lease and no agent.
 * @module
 */
import { isReason } from "../../lease/reason.ts";
import { startJob } from "../../sys/job.ts";
import { usage } from "../failure.ts";
import { say } from "../output.ts";
import { cannotRun } from "./command.ts";
import type { GuardedCommand } from "./command.ts";
import { guardedEnvironment, restoreDescriptorLimit } from "./environment.ts";
import { Job } from "./job.ts";
import type { Signals } from "./signals.ts";

/** One line, always in this form: whoever audits logs looks for it. `how` may say more. */
export function sayUnguarded(store: string, reason: string, how = ""): void {
  say(`UNGUARDED store=${store} reason=${JSON.stringify(reason)}${how}`);
}

/** Runs the command and returns its exit status. */
export async function runUnguarded(options: {
  readonly command: GuardedCommand;
  readonly store: string;
  readonly reason: string;
  readonly signals: Signals;
}): Promise<number> {
  const { command, store, signals } = options;
  const reason = options.reason.trim();
  if (!isReason(reason)) throw usage("--unguarded needs a reason: why no lease is needed here.");
  sayUnguarded(store, reason);
  restoreDescriptorLimit();
  let job: Job | null = null;
  signals.forwardTo((signal) => job?.forward(signal));
  let group: number;
  try {
    group = startJob({
      ...command,
      env: guardedEnvironment({ ZIT_LEASE_UNGUARDED: reason }, null),
    });
  } catch (error) {
    throw cannotRun(command, error);
  }
  job = new Job(group, {});
  return (await job.ended).status;
}
