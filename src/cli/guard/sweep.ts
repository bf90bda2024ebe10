/**
 * Finds the processes of a guarded command that left its process group.
 *
 * A process can leave its group (setsid), and its parent can end before it, but it keeps the
 * environment it was started with. So each guard adds a mark of its own to `ZIT_LEASE_GUARDS`, and
 * who carries it, by whatever way, came from that command. A nested guard's commands carry the marks
 * of all guards around them. What no environment shows: a process that both left the group and
 * started a program with a cleared environment, or whose user was changed out of our reach. The
 * command's cgroup has these, too, where one could be made.
 * @module
 */
import { closeSync, openSync, readdirSync, readSync } from "node:fs";
import type { Cgroup } from "../../sys/cgroup.ts";

/** Carries the marks, outermost guard first, separated by colons. */
export const MARKS_VARIABLE = "ZIT_LEASE_GUARDS";

/** A living process of a guarded command. */
export interface Member {
  readonly pid: number;
  readonly group: number;
  /** Whether no other guard stands between: the mark is its innermost, or it has none. */
  readonly innermost: boolean;
}

const CHUNK_BYTES = 64 * 1_024;

/** The living processes that are in `group` or `cgroup` or carry `mark`, never ourselves. */
export function membersOf(target: {
  readonly group: number | null;
  readonly mark: string;
  readonly cgroup: Cgroup | null;
}): Member[] {
  const members: Member[] = [];
  const caught = new Set(target.cgroup?.pids());
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const group = groupOf(pid);
    if (group === null) continue;
    const marks = marksOf(pid);
    const isMember = group === target.group || marks.includes(target.mark) || caught.has(pid);
    if (!isMember) continue;
    members.push({ pid, group, innermost: (marks.at(-1) ?? target.mark) === target.mark });
  }
  return members;
}

/** The process group of a living process; null for one that ended, reaped or not. */
function groupOf(pid: number): number | null {
  const stat = readAll(`/proc/${pid}/stat`)?.toString("latin1");
  if (stat === undefined) return null;
  // The command, in parentheses, may itself hold parentheses: fields go on after the last.
  const [state, , group] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return state === "Z" || state === "X" ? null : Number(group);
}

/** The marks a process carries; none where it is not ours to see. */
function marksOf(pid: number): string[] {
  const environment = readAll(`/proc/${pid}/environ`)?.toString("latin1") ?? "";
  const prefix = `\0${MARKS_VARIABLE}=`;
  const at = `\0${environment}`.indexOf(prefix);
  if (at < 0) return [];
  return environment.slice(at + prefix.length - 1).split("\0", 1)[0]!.split(":");
}

/** Reads a file of /proc, whose size is not known beforehand. */
function readAll(path: string): Buffer | null {
  let fd: number;
  try {
    fd = openSync(path, "r");
  } catch {
    return null;
  }
  try {
    const chunks: Buffer[] = [];
    for (;;) {
      const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
      const bytes = readSync(fd, chunk);
      if (bytes === 0) return Buffer.concat(chunks);
      chunks.push(chunk.subarray(0, bytes));
    }
  } catch {
    return null; // it ended, or runs with rights that we lack
  } finally {
    closeSync(fd);
  }
}
