/**
 * Finds a guarded command's processes by the lock: they inherited its descriptor, whatever else they
 * left behind.
 * @module
 */
import { fstatSync, readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { processState } from "../../sys/proc.ts";

/** How to tell who has the lock of one grant. */
export interface LockMark {
  readonly dev: number;
  readonly ino: number;
  /**
   * When the command started, in clock ticks since boot. The agent has the lock as well, but was
   * running when it granted it.
   */
  readonly since: number;
  /**
   * What the file says of this grant. A later grant of the store writes its own line before it passes
   * its lock on, and can have the lock only when nobody has ours any more: so once the line is another,
   * whoever has the file locked is another's.
   */
  readonly line: string;
  /** The agent as the kernel names it; with socket activation that is who opened the socket. */
  readonly agent: number;
}

/**
 * The mark of the locked file `fd`, of a command whose first process is `group`. Null where it cannot
 * be known when that started, or where the file may not be read by us: having it open from the agent does
 * not allow that by its path, by which others' are looked at.
 */
export function lockMark(fd: number, group: number, agent: number): LockMark | null {
  const state = processState(group);
  if (state === null) return null;
  try {
    const { dev, ino } = fstatSync(fd);
    return { dev, ino, since: state.startTime, line: readLine(`/proc/self/fd/${fd}`), agent };
  } catch {
    return null; // the command runs by now: without this mark the others have to do
  }
}

function readLine(path: string): string {
  return readFileSync(path, "latin1").split("\n", 1)[0].trimEnd();
}

/** A process, told from a later one of its number. */
export interface Suspect {
  readonly pid: number;
  /** In clock ticks since boot. */
  readonly startTime: number;
}

/**
 * Follows the lock of one command for as long as the command has it.
 *
 * Nothing shows whether two processes have a file locked by the same opening. But a lock is
 * exclusive: while one that is known to be of the command has it, all who have it are of the
 * command, and from then on known as well. As soon as none of those has it any more, it may be the next
 * grant's, or that of another agent, started meanwhile: whoever has it then is left alone for good.
 */
export class LockTrail {
  readonly mark: LockMark;
  readonly #known = new Map<number, number>();
  #lost = false;

  constructor(mark: LockMark) {
    this.mark = mark;
  }

  /** Those of `processes` that have the command's lock; `members` are known to be of the command. */
  find(processes: readonly Suspect[], members: ReadonlySet<number>): number[] {
    if (this.#lost) return [];
    const has = ({ pid, startTime }: Suspect) => hasLock(pid, startTime, this.mark);
    const sure = processes.filter((each) =>
      members.has(each.pid) || this.#known.get(each.pid) === each.startTime
    ).filter(has);
    const holders = sure.length === 0 ? [] : processes.filter(has);
    // Only if one has it still, it was theirs all the time that we looked.
    this.#lost = !sure.some((each) => has(each) && isSame(each));
    if (this.#lost) return [];
    for (const { pid, startTime } of holders) this.#known.set(pid, startTime);
    return holders.map(({ pid }) => pid);
  }
}

function isSame({ pid, startTime }: Suspect): boolean {
  return processState(pid)?.startTime === startTime;
}

/** Whether a process, started at `startTime`, has that lock: the file open, by the locked opening. */
function hasLock(pid: number, startTime: number, mark: LockMark): boolean {
  if (startTime < mark.since || pid === mark.agent) return false;
  try {
    // Agents and guards take and pass locks, and none of them is what a command runs.
    if (readlinkSync(`/proc/${pid}/exe`) === readlinkSync("/proc/self/exe")) return false;
    return readdirSync(`/proc/${pid}/fd`).some((fd) => isLocked(pid, fd, mark));
  } catch {
    return false; // it ended, or is not ours to see
  }
}

function isLocked(pid: number, fd: string, { dev, ino, line }: LockMark): boolean {
  try {
    const path = `/proc/${pid}/fd/${fd}`;
    const file = statSync(path);
    if (file.ino !== ino || file.dev !== dev) return false;
    // Others may have opened the file, too, to wait for it or to read it.
    const locked = /^lock:.*\bFLOCK\b/m.test(readFileSync(`/proc/${pid}/fdinfo/${fd}`, "latin1"));
    // Read last: a line that is ours now was ours when the lock was seen.
    return locked && readLine(path) === line;
  } catch {
    return false; // closed meanwhile
  }
}
