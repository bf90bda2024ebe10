/**
 * Which processes have a file locked, for people who wonder who keeps it.
 *
 * The file's own line names the process that was granted; a child of it that went into the
 * background has the lock as well, perhaps for ever. `/proc/locks` names only who took the lock, most
 * likely an agent that is gone. But `/proc/PID/fdinfo` shows a lock at each descriptor that shares it.
 * @module
 */
import { readdirSync, readFileSync, readlinkSync, realpathSync } from "node:fs";
import type { LockOwner } from "../ports/lock_file.ts";
import { commandOf } from "../sys/proc.ts";

/**
 * How much processor time a search may take from everything else, ms: a hundred processes take about
 * 5. A machine with so many that it does not suffice gets an incomplete answer. Not by the clock: on
 * a busy machine that would be over before anything was looked at.
 */
const BUDGET_MS = 25;

/** Enough to act on. */
const MAX_OWNERS = 8;

/**
 * The processes that have `path` locked, `likely` ones looked at first and, if one of them has it,
 * only them. Empty where none can be seen: another user's processes are hidden from all but root.
 */
export function lockOwners(path: string, likely: readonly number[]): LockOwner[] {
  let target: string;
  try {
    target = realpathSync(path);
  } catch {
    return [];
  }
  const found = search(likely.filter((pid) => pid > 0), target);
  return found.length > 0 ? found : search(allProcesses(), target);
}

/**
 * The other processes that have these files locked by an opening that `taker` locked and passed on, by
 * file; none for a file that `taker` has locked itself. One look at each process, the newest first, for
 * as long as a search may take.
 */
export function lockHeirs(paths: readonly string[], taker: number): Map<string, number[]> {
  const byTarget = new Map<string, string>();
  for (const path of paths) {
    try {
      byTarget.set(realpathSync(path), path);
    } catch {
      // Removed: nobody can be granted it.
    }
  }
  const kept = inherited(taker, byTarget, taker);
  for (const [target, path] of byTarget) if (kept.has(path)) byTarget.delete(target);
  const heirs = new Map<string, number[]>();
  if (byTarget.size === 0) return heirs;
  const until = cpuMs() + BUDGET_MS;
  for (const pid of allProcesses()) {
    if (cpuMs() > until) break;
    if (pid === taker) continue;
    for (const path of inherited(pid, byTarget, taker)) {
      const known = heirs.get(path);
      if (known === undefined) heirs.set(path, [pid]);
      else known.push(pid);
    }
  }
  return heirs;
}

function inherited(pid: number, byTarget: Map<string, string>, taker: number): Set<string> {
  const paths = listing(`/proc/${pid}/fd`).flatMap((fd) => {
    const path = byTarget.get(linkOf(pid, fd) ?? "");
    return path !== undefined && takerOf(pid, fd) === taker ? [path] : [];
  });
  return new Set(paths);
}

function search(pids: readonly number[], target: string): LockOwner[] {
  const until = cpuMs() + BUDGET_MS;
  const owners: LockOwner[] = [];
  for (const pid of pids) {
    if (owners.length >= MAX_OWNERS || cpuMs() > until) break;
    if (hasLocked(pid, target)) owners.push({ pid, command: commandOf(pid) ?? "?" });
  }
  return owners;
}

function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

/** All processes, newest numbers first: what was left behind is younger than the system's own. */
function allProcesses(): number[] {
  return listing("/proc").map(Number).filter((pid) => pid > 0).sort((a, b) => b - a);
}

function hasLocked(pid: number, target: string): boolean {
  return listing(`/proc/${pid}/fd`).some((fd) =>
    linkOf(pid, fd) === target && takerOf(pid, fd) !== null
  );
}

/** What a descriptor of a process is open for; null if it was closed in between, or is not ours to see. */
function linkOf(pid: number, fd: string): string | null {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`);
  } catch {
    return null;
  }
}

/** Which process took the lock that a descriptor has a share in; null where there is none. */
function takerOf(pid: number, fd: string): number | null {
  try {
    const text = readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8");
    const taker = /^lock:.*\bFLOCK\b.*\bWRITE\b\s+(-?\d+)/m.exec(text)?.[1];
    return taker === undefined ? null : Number(taker);
  } catch {
    return null;
  }
}

function listing(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
