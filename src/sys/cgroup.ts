/**
 * Control groups (v2): a process cannot leave one by itself, whatever it does to its session, its
 * environment or its parents, and the kernel ends all of one at once.
 * @module
 */
import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFile,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { reasonOf } from "./errno.ts";
import { processExists, processState } from "./proc.ts";

/** What the groups made here are called: with our number, so that others see when we are gone. */
const PREFIX = "zit-guard-";
const GROUP = new RegExp(`^${PREFIX}(\\d+)-(.+)$`);

/** A group that was made here, by its place among others. */
export interface MarkedGroup {
  /** The process that made it. */
  readonly maker: number;
  /** What it was named after. */
  readonly mark: string;
}

/** The groups made by {@linkcode Cgroup.make} that a path of cgroups goes through, the outermost first. */
export function marksInPath(path: string): MarkedGroup[] {
  return path.split("/").flatMap((name) => {
    const [, maker, mark] = GROUP.exec(name) ?? [];
    return mark === undefined ? [] : [{ maker: Number(maker), mark }];
  });
}

/** How often processes that are still forking are moved out before the group is left behind. */
const MOVE_TRIES = 5;

/** A group beneath the one this process is in. */
export class Cgroup {
  /** Its directory. */
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /** Makes one, named after this process and `name`. Null where that cannot be. */
  static make(name: string): Cgroup | null {
    try {
      const parent = ownDirectory();
      removeStale(parent);
      const path = join(parent, `${PREFIX}${process.pid}-${name}`);
      mkdirSync(path);
      const group = new Cgroup(path);
      if (group.#canKill()) return group;
      rmdirSync(path);
    } catch {
      // No cgroup v2, or not ours to make groups in.
    }
    return null;
  }

  /** One that another process made. */
  static at(path: string): Cgroup {
    return new Cgroup(path);
  }

  /**
   * Starts something inside: this process goes in, starts it, and comes out. So it is inside from
   * its first instruction on, and so is all that it will start. False in `inside` if it is not.
   */
  around<T>(start: () => T): { readonly result: T; readonly inside: boolean } {
    const entered = move(this.path, "0");
    let left = false;
    let result: T;
    try {
      result = start();
    } finally {
      // Without a way out, killing the group would kill us: then it is not used.
      if (entered) left = move(dirname(this.path), "0");
    }
    return { result, inside: entered && left };
  }

  /** The processes inside, and inside of the groups beneath. */
  pids(): number[] {
    return pidsBeneath(this.path);
  }

  /** Has the kernel kill everything inside, also what is being forked. */
  kill(): void {
    try {
      writeFileSync(join(this.path, "cgroup.kill"), "1");
    } catch {
      // It is gone.
    }
  }

  /**
   * Removes the group; what still runs in it goes on in the one above. Where a process that lives has
   * made a group beneath, as a guard that was left running has, it stays until that one is gone, too.
   */
  remove(): void {
    for (let tries = MOVE_TRIES; tries > 0; tries--) {
      removeStale(this.path);
      for (const pid of pidsOf(this.path)) move(dirname(this.path), String(pid));
      try {
        return rmdirSync(this.path);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EBUSY") return;
      }
    }
  }

  #canKill(): boolean {
    try {
      accessSync(join(this.path, "cgroup.kill"), constants.W_OK);
      return true;
    } catch {
      return false;
    }
  }
}

/**
 * Prepares the kernel for a move between groups, in another thread. The first move after some quiet
 * takes it a grace period of RCU, 5 to 15 ms, and those right after it microseconds: so this process
 * is moved to where it is, which changes nothing, while there is something else to wait for. Resolves
 * when that is done: before, no other move may be begun, or this one would undo it.
 */
export function expectMove(): Promise<void> {
  return new Promise((resolve) => {
    try {
      writeFile(join(ownDirectory(), "cgroup.procs"), "0", () => resolve());
    } catch {
      resolve(); // No cgroup v2: then nothing is moved.
    }
  });
}

/** Why this process cannot make groups; null where it can. */
export function cgroupProblem(): string | null {
  try {
    const own = ownDirectory();
    accessSync(own, constants.W_OK);
    accessSync(join(own, "cgroup.procs"), constants.W_OK);
    return null;
  } catch (error) {
    return reasonOf(error);
  }
}

/** The directory of the group this process is in. */
function ownDirectory(): string {
  const own = /^0::(.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1];
  if (own === undefined) throw new Error("this kernel has no cgroup v2");
  for (const line of readFileSync("/proc/self/mountinfo", "utf8").split("\n")) {
    // ID, parent, device, root within the file system, mount point, options…, "-", type, …
    const [, , , root, point] = line.split(" ");
    if (!line.includes(" - cgroup2 ") || root === undefined || point === undefined) continue;
    if (root === "/") return join(unescape(point), own);
    if (own === root || own.startsWith(`${root}/`)) {
      return join(unescape(point), own.slice(root.length));
    }
  }
  throw new Error("cgroup v2 is not mounted");
}

/** Spaces and the like are octal in mountinfo. */
function unescape(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(parseInt(octal, 8)));
}

/**
 * Removes the groups in `parent` whose makers were killed together with whoever should have removed
 * them, and those within, as guards in guards make them.
 */
function removeStale(parent: string): void {
  for (const name of namesIn(parent)) {
    const maker = name.startsWith(PREFIX) ? parseInt(name.slice(PREFIX.length), 10) : 0;
    if (!(maker > 0) || lives(maker)) continue;
    const path = join(parent, name);
    removeStale(path);
    try {
      rmdirSync(path);
    } catch {
      // Something runs in it: what its guard left running, watched by a watchdog.
    }
  }
}

/** One that was killed with its parent may wait for a while to be noticed: it makes no use of a group. */
function lives(pid: number): boolean {
  return processExists(pid) && !processState(pid)?.ended;
}

/** The names in a directory; none where it is gone. */
function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function move(group: string, pid: string): boolean {
  try {
    writeFileSync(join(group, "cgroup.procs"), pid);
    return true;
  } catch {
    return false;
  }
}

function pidsOf(group: string): number[] {
  try {
    const text = readFileSync(join(group, "cgroup.procs"), "latin1");
    return text.split("\n").map(Number).filter((pid) => pid > 0);
  } catch {
    return [];
  }
}

function pidsBeneath(group: string): number[] {
  const pids = pidsOf(group);
  try {
    for (const entry of readdirSync(group, { withFileTypes: true })) {
      if (entry.isDirectory()) pids.push(...pidsBeneath(join(group, entry.name)));
    }
  } catch {
    // Removed meanwhile.
  }
  return pids;
}
