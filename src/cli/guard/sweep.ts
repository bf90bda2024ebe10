/**
 * Finds all processes of a guarded command, those that left its process group as well.
 *
 * A process can leave its group (setsid), and its parent can end before it, but it keeps the
 * environment it was started with. So each guard adds a mark of its own to `ZIT_LEASE_GUARDS`, and
 * who carries it came from that command; and so do the children of whoever did. While the wrapper
 * lives, orphans become its children, which makes the search complete. When only the watchdog is
 * left, a process that left the group, started a program with a cleared environment, and whose
 * parents have all ended is found by its share in the lock, or in the command's cgroup, where one
 * could be made. Only without a cgroup, and if it closed the lock as well, it is missed.
 * @module
 */
import { closeSync, openSync, readdirSync, readSync } from "node:fs";
import type { Cgroup } from "../../sys/cgroup.ts";
import { hasEnded, statFields } from "../../sys/proc.ts";
import type { LockTrail } from "./lock_trail.ts";

/** Carries the marks, outermost guard first, separated by colons; each as {@linkcode signedMark} has it. */
export const MARKS_VARIABLE = "ZIT_LEASE_GUARDS";

const SIGN_BYTES = 8;

/**
 * What tells a grant's token to whoever knows it, and nothing of it to others. A mark is made before there is
 * a token, and a program under a guard may have other tokens of its own: only this says whose mark it is.
 */
export function signOf(token: string): string {
  return new Bun.CryptoHasher("sha256").update(token).digest("hex").slice(0, 2 * SIGN_BYTES);
}

/** A mark as it stands in the environment: with the sign of the grant's token behind a dot. */
export function signedMark(mark: string, token: string): string {
  return `${mark}.${signOf(token)}`;
}

/** Which processes are meant. */
export interface Target {
  /** The mark in their environment. */
  readonly mark: string;
  /** Their process group; null before the command was started, or where that is not known. */
  readonly group: number | null;
  /** Null where none could be made. */
  readonly cgroup: Cgroup | null;
  /** Null where the lock does not show whose a process is: shared with other commands, or not there. */
  readonly lock: LockTrail | null;
  /** A process whose children are of the command, and those of its children that are not. */
  readonly parent?: { readonly pid: number; readonly except: ReadonlySet<number> };
  /**
   * Who starts the command from inside its cgroup, and may be there still: never of the command. Null
   * where nobody else is in it.
   */
  readonly starter?: number | null;
}

/** A living process of a guarded command. */
export interface Member {
  readonly pid: number;
  readonly group: number;
  /** Whether no other guard stands between: the mark is its innermost, or it has none. */
  readonly innermost: boolean;
}

/** A living process. */
export interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  /** In clock ticks since boot. */
  readonly startTime: number;
  /** The guards that it runs under, by their marks; the outermost first. */
  readonly marks: readonly string[];
  /** The same as they were signed; "" for one that was not. */
  readonly signs: readonly string[];
  /** The token that it was told; null for none. */
  readonly token: string | null;
}

const CHUNK_BYTES = 64 * 1_024;

/** The living processes of a command, never ourselves. */
export function membersOf(target: Target): Member[] {
  const { mark, group, parent, cgroup, lock } = target;
  const caught = new Set(cgroup?.pids());
  if (target.starter) caught.delete(target.starter);
  const members = new Set<number>();
  const processes = livingProcesses();
  const belongs = (each: Process) =>
    each.group === group || each.marks.includes(mark) || members.has(each.parent) ||
    caught.has(each.pid) ||
    (each.parent === parent?.pid && !parent.except.has(each.pid));
  addAll(members, processes, belongs);
  for (const pid of lock?.find(processes, members) ?? []) members.add(pid);
  addAll(members, processes, belongs);
  return processes.filter(({ pid }) => members.has(pid)).map(({ pid, group, marks }) => ({
    pid,
    group,
    innermost: (marks.at(-1) ?? mark) === mark,
  }));
}

/** Children may be listed before their parents: so again, until nobody was added. */
function addAll(
  members: Set<number>,
  processes: readonly Process[],
  belongs: (each: Process) => boolean,
): void {
  for (let before = -1; before !== members.size;) {
    before = members.size;
    for (const each of processes) if (belongs(each)) members.add(each.pid);
  }
}

/** The other living processes of our own process group. */
export function othersInGroup(group: number): number[] {
  return livingProcesses().filter((each) => each.group === group).map((each) => each.pid);
}

/** All but ourselves, by their numbers. */
export function livingProcesses(): Process[] {
  const processes: Process[] = [];
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const stat = readAll(`/proc/${pid}/stat`)?.toString("latin1");
    if (stat === undefined) continue;
    const fields = statFields(stat);
    if (hasEnded(fields)) continue;
    const [, parent, group] = fields;
    const environment = readEnvironment(pid);
    const signed = marksIn(environment).map((each) => each.split("."));
    processes.push({
      pid,
      parent: Number(parent),
      group: Number(group),
      startTime: Number(fields[19]),
      marks: signed.map(([mark]) => mark!),
      signs: signed.map(([_, sign = ""]) => sign),
      token: valueOf("ZIT_LEASE_TOKEN", environment),
    });
  }
  return processes;
}

/** The signed marks of the guards that a process runs under, by its environment; the outermost first. */
export function marksIn(environment: readonly string[]): string[] {
  return valueOf(MARKS_VARIABLE, environment)?.split(":") ?? [];
}

function valueOf(name: string, environment: readonly string[]): string | null {
  const prefix = `${name}=`;
  return environment.find((each) => each.startsWith(prefix))?.slice(prefix.length) ?? null;
}

/** The environment a process was started with, `NAME=value` each; none where it is not ours to see. */
function readEnvironment(pid: number): string[] {
  return readAll(`/proc/${pid}/environ`)?.toString("latin1").split("\0") ?? [];
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
