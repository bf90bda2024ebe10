/**
 * A line of the journal of grants, and whether what it tells of may still be writing.
 * @module
 */
import { processExists, processState } from "../sys/proc.ts";
import { unixSocketInodes } from "../sys/socket_peer.ts";

/** A grant as it is journaled. */
export interface JournaledGrant {
  /** Names the grant among all of this host. Not its token: tokens are secret, this is written down. */
  readonly id: string;
  readonly store: string;
  readonly epoch: number;
  /** The client process; 0 where this PID namespace cannot see it. */
  readonly pid: number;
  /** When that process started, in clock ticks since boot; null where that could not be read. */
  readonly startTime: number | null;
  /**
   * The client's end of its connection, by the number of its inode: whoever has that open may use the
   * grant, also where the process that connected has left it to a child and ended. Default: 0, not
   * known.
   */
  readonly socket?: number;
  /**
   * For how long after the agent's death what the client may leave running can write: such as the
   * command of a guard that was killed, which has the lock in hand. Default: 0, nothing is left.
   */
  readonly lingerMs?: number;
}

/** What is journaled under an id. */
export interface Value extends Omit<JournaledGrant, "id"> {
  /**
   * No grant but what gone clients left running in the store: until when it may write, and longer where
   * it has the lock then, and nobody has ended it.
   */
  readonly leftUntilMs?: number;
}

/** The Unix sockets that are open now, looked for when somebody asks, once. */
export class Sockets {
  #inodes: ReadonlySet<number> | null = null;

  has(inode: number): boolean {
    this.#inodes ??= unixSocketInodes();
    return this.#inodes.has(inode);
  }
}

/** Whether a client may still use its grant: it lives, or somebody has its connection. */
export function mayLive({ pid, startTime, socket = 0 }: Value, sockets: Sockets): boolean {
  return pid === 0 || runs(pid, startTime) || (socket > 0 && sockets.has(socket));
}

function runs(pid: number, startTime: number | null): boolean {
  const state = processState(pid);
  // Where /proc hides other users' processes, that there is one of this number must do.
  if (!state) return processExists(pid);
  return !state.ended && (startTime === null || state.startTime === startTime);
}

/** Reads a line of the journal; null where it is none. */
export function decode(value: unknown): Value | null {
  if (typeof value !== "object" || value === null) return null;
  const fields = value as Partial<Record<keyof Value, unknown>>;
  const { store, epoch, pid, startTime, socket, lingerMs, leftUntilMs } = fields;
  if (typeof store !== "string" || !isCount(epoch) || !isCount(pid)) return null;
  if (startTime !== null && !isCount(startTime)) return null;
  if (socket !== undefined && !isCount(socket)) return null;
  if (lingerMs !== undefined && !isCount(lingerMs)) return null;
  if (leftUntilMs !== undefined && !isCount(leftUntilMs)) return null;
  return {
    store,
    epoch,
    pid,
    startTime,
    ...(socket === undefined ? {} : { socket }),
    ...(lingerMs === undefined ? {} : { lingerMs }),
    ...(leftUntilMs === undefined ? {} : { leftUntilMs }),
  };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
