/**
 * How many connections the descriptor limit allows. Running out of descriptors must never happen: the
 * accept loop then spins without an event, and a lock file that cannot be opened looks like a fault.
 * @module
 */
import { readFileSync } from "node:fs";

/** Descriptors the agent needs besides connections and lock files: coordinator, log, journal, epoll… */
const RESERVED = 64;

/** Connections that were told they cannot stay and may not have read it yet. */
export const MAX_TURNED_AWAY = 64;

/**
 * How many connections to take when the process may open `descriptors` files: `wanted`, or as many as
 * leave half of what is not reserved to the lock files of grants.
 */
export function connectionLimit(wanted: number, descriptors: number): number {
  const free = descriptors - RESERVED - MAX_TURNED_AWAY;
  return Math.max(1, Math.min(wanted, Math.floor(free / 2)));
}

/** The process's soft limit of open files; infinite if there is none. */
export function descriptorLimit(): number {
  const limits = readFileSync("/proc/self/limits", "utf8");
  const soft = /^Max open files\s+(\S+)/m.exec(limits)?.[1];
  return soft === undefined || soft === "unlimited" ? Infinity : Number(soft);
}
