/**
 * The controlling terminal, shared with a command in a process group of its own as a shell does:
 * whoever is in its foreground gets the keys and their signals, others are stopped when they read.
 * @module
 */
import { constants, openSync, readFileSync } from "node:fs";
import { isatty } from "node:tty";
import { foregroundGroup, ownGroup, setForegroundGroup } from "../../sys/job.ts";
import { statFields } from "../../sys/proc.ts";

/** Our controlling terminal. */
export class Terminal {
  readonly #fd: number;
  readonly #own = ownGroup();

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /** Opens it; null where there is none. */
  static open(): Terminal | null {
    try {
      return new Terminal(openSync("/dev/tty", constants.O_RDWR | constants.O_NOCTTY));
    } catch {
      return null;
    }
  }

  /** Whether keys go to our own group. */
  get isOurs(): boolean {
    return foregroundGroup(this.#fd) === this.#own;
  }

  /** Whether keys go to `group`. */
  isOf(group: number): boolean {
    return foregroundGroup(this.#fd) === group;
  }

  /** Has keys go to `group`. */
  give(group: number): void {
    setForegroundGroup(this.#fd, group);
  }

  /** Has keys go to us again, if they go to `group` now. */
  takeBack(group: number): void {
    if (this.isOf(group)) setForegroundGroup(this.#fd, this.#own);
  }
}

/**
 * Whether a command should have the terminal from its start: in the plain case of typing at it and
 * reading from it. In a pipeline it is given when the command first wants it, because another member
 * of the pipeline (a pager) may need it more.
 */
export function isInteractive(): boolean {
  return isatty(0) && isatty(1);
}

/**
 * Whether somebody would continue our group once it is stopped: a parent in another group of our
 * session, which is what a shell with job control is. Without one the kernel does not stop a group
 * by keys, and neither must we.
 */
export function canBeStopped(): boolean {
  const own = statOf(process.pid);
  for (let next = own?.parent; own !== null && next !== undefined && next > 1;) {
    const stat = statOf(next);
    if (stat === null || stat.session !== own.session) return false;
    if (stat.group !== own.group) return true;
    next = stat.parent;
  }
  return false;
}

function statOf(pid: number): { parent: number; group: number; session: number } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const [, parent, group, session] = statFields(stat).map(Number);
    return { parent: parent!, group: group!, session: session! };
  } catch {
    return null;
  }
}
