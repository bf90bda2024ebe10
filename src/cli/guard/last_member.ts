/**
 * The end of a command whose lease went.
 * @module
 */
import { bootTimeMs } from "../../sys/boot_time.ts";
import { maySignal } from "../../sys/job.ts";
import { say } from "../output.ts";
import type { Enforcer } from "./enforcer.ts";

/** How often to look whether the last process has ended. */
const LOOK_EVERY_MS = 20;
/** Killed processes end at once, unless the kernel or another user's rights hold them. */
const KILLED_WITHIN_MS = 2_000;
/** A process that forks and ends while it is looked for shows neither itself nor its child. */
const EMPTY_LOOKS = 2;

/**
 * Waits until no process of the command runs that the enforcer can kill, at `killedAtMs` at the
 * latest. One that does not die of it is waited for, and said so; one that we may not kill is named
 * and left.
 */
export async function untilNobodyRuns(enforcer: Enforcer, killedAtMs: number): Promise<void> {
  const overdueMs = killedAtMs + KILLED_WITHIN_MS;
  let told = false;
  for (let empty = 0; empty < EMPTY_LOOKS; await Bun.sleep(LOOK_EVERY_MS)) {
    const members = enforcer.members();
    const ours = members.filter(maySignal);
    const overdue = bootTimeMs() >= overdueMs;
    empty = members.length === 0 ? empty + 1 : 0;
    if (!overdue || members.length === 0) continue;
    if (ours.length === 0) {
      return say(`not permitted to kill processes ${members.join(", ")}: end them yourself`);
    }
    if (told) continue;
    told = true;
    say(`processes ${ours.join(", ")} were killed but have not ended; waiting for them`);
  }
}
