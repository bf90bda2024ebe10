/**
 * How many connections the descriptor limit allows. Running out of descriptors must never happen: the
 * accept loop then spins without an event, and a lock file that cannot be opened looks like a fault.
 * @module
 */

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
