/**
 * How many connections, and how many requests of each, are taken at once.
 * @module
 */

/** Descriptors the agent needs besides connections and lock files: coordinator, log, journal, epoll… */
const RESERVED = 64;

/** Connections that were told they cannot stay and may not have read it yet: at least so many… */
const MIN_TURNED_AWAY = 64;
/** …and at most, where there are descriptors enough: as many as come in one burst by default. */
const MAX_TURNED_AWAY = 1_024;
/** The part of all descriptors that they may take. */
const TURNED_AWAY_PART = 1 / 16;

/** Requests in flight on a connection, besides guards that wait and what is done to their grants. */
const OTHER_REQUESTS = 1_024;

/** What the defaults of the two flags come to, and more. */
const MIN_IN_FLIGHT = 16_384;

/** How many connections that were turned away may linger to read why. */
export function turnedAwayLimit(descriptors: number): number {
  const part = Math.floor(descriptors * TURNED_AWAY_PART);
  return Math.max(MIN_TURNED_AWAY, Math.min(part, MAX_TURNED_AWAY));
}

/** Descriptors for connections and lock files. */
function freeOf(descriptors: number): number {
  return descriptors - RESERVED - turnedAwayLimit(descriptors);
}

/**
 * How many connections to take when the process may open `descriptors` files: `wanted`, or as many as
 * leave half of what is not reserved to the lock files of grants.
 *
 * Running out of descriptors must never happen: the accept loop then spins without an event, and a
 * lock file that cannot be opened looks like a fault.
 */
export function connectionLimit(wanted: number, descriptors: number): number {
  return Math.max(1, Math.min(wanted, Math.floor(freeOf(descriptors) / 2)));
}

/** How many lock files may be open at once: the half that connections leave. */
export function lockLimit(descriptors: number): number {
  return Math.max(1, Math.floor(freeOf(descriptors) / 2));
}

/** Connections and grants with which an agent is still of use. */
const MIN_OF_EACH = 16;

/** With fewer descriptors than these the agent could run out of them. */
const MIN_DESCRIPTORS = RESERVED + MIN_TURNED_AWAY + 2 * MIN_OF_EACH;

/** Why an agent must not run with so few descriptors, and what to do; null: they suffice. */
export function tooFewDescriptors(descriptors: number): string | null {
  if (descriptors >= MIN_DESCRIPTORS) return null;
  return `Cannot run with ${descriptors} open files (ulimit -n, LimitNOFILE= of a systemd unit): the agent ` +
    `needs at least ${MIN_DESCRIPTORS}; raise the hard limit`;
}

/** What of the flags the descriptors do not suffice for; null: all of it. */
export function descriptorWarning(
  wanted: { readonly maxConnections: number; readonly maxWaiters: number },
  descriptors: number,
): string | null {
  const { maxConnections, maxWaiters } = wanted;
  const [connections, locks] = [
    connectionLimit(maxConnections, descriptors),
    lockLimit(descriptors),
  ];
  const short = [
    ...connections < maxConnections ? [`${connections} connections (--max-connections)`] : [],
    ...locks < maxWaiters ? [`${locks} guards and grants at a time (--max-waiters)`] : [],
  ];
  if (short.length === 0) return null;
  const needed = RESERVED + MAX_TURNED_AWAY + 2 * Math.max(maxConnections, maxWaiters);
  return `with ${descriptors} open files (ulimit -n) there can be only ${
    short.join(" and ")
  }; raise the ` +
    `hard limit (LimitNOFILE= of a systemd unit) to ${needed}, or lower the flags`;
}

/**
 * How many requests of one connection may await their answers. More than `--max-waiters` and
 * `--max-grants` allow guards and releases: else a client's waiting guards could keep the `release`
 * from being read that they wait for.
 */
export function inFlightLimit(maxWaiters: number, maxGrants: number): number {
  return Math.max(MIN_IN_FLIGHT, maxWaiters + maxGrants + OTHER_REQUESTS);
}
