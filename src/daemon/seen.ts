/**
 * The processes of the host, with what nobody can claim for another: whose they are, and in which
 * guards' cgroups they run.
 * @module
 */
import { readFileSync } from "node:fs";
import { livingProcesses, type Process } from "../cli/guard/sweep.ts";
import { type MarkedGroup, marksInPath } from "../sys/cgroup.ts";

/** A living process, as the agent judges it. */
export interface Seen extends Process {
  /**
   * Its real user; null where it has ended meanwhile. Not the owner of `/proc/PID`: that is root for
   * whatever made itself undumpable, so anybody could pass for root's; and it follows the effective user,
   * so a service of root that acts for somebody would pass for theirs. By the real user the kernel itself
   * decides who may signal a process, so that nobody gets more of the agent than they could do themselves.
   */
  readonly uid: number | null;
  /** The guards' cgroups that it runs in, the outermost first; read only for the users asked about. */
  readonly groups: readonly MarkedGroup[];
}

/** All living processes but ourselves; the cgroups of those of these users. */
export function seenProcesses(uids: ReadonlySet<number>): Seen[] {
  return livingProcesses().map((each) => {
    const uid = realUser(each.pid);
    return { ...each, uid, groups: uid !== null && uids.has(uid) ? groupsOf(each.pid) : [] };
  });
}

/** Its real user; null where no such process runs. */
function realUser(pid: number): number | null {
  const uid = /^Uid:\t(\d+)/m.exec(textOf(`/proc/${pid}/status`))?.[1];
  return uid === undefined ? null : Number(uid);
}

/** Whoever makes a group is inside it for a moment too, but is not of the command. */
function groupsOf(pid: number): MarkedGroup[] {
  const path = /^0::(.*)$/m.exec(textOf(`/proc/${pid}/cgroup`))?.[1] ?? "";
  return marksInPath(path).filter(({ maker }) => maker !== pid);
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return ""; // it has ended
  }
}
