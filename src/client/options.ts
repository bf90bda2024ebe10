/**
 * What callers can choose.
 * @module
 */
import type { ConnectOptions } from "./connect.ts";

/** How to connect, and what goes for all guards. */
export interface ClientOptions extends ConnectOptions {
  /**
   * Path of the agent's executable (from the working directory of this process), or its name in PATH;
   * default `agent`. By way of it the lock on disk passes to what {@linkcode ZitCli.write} runs under a
   * token, and stays with that until it ends: also when the agent is killed, or this process. False: the
   * lock goes with the agent, or with this process, though the program may write on until its watchdog
   * has killed it.
   */
  readonly passLock?: string | false;
}

/** How to guard a write. */
export interface GuardOptions {
  /**
   * How long to wait for the turn, the lock and the end of a grace, in ms; what is longer than 24.8 days is
   * that. Default 0.
   */
  readonly waitMs?: number;
  /** Whether to wait, too, while another node holds the lease. Default false. */
  readonly waitLease?: boolean;
  /** Whether it may overlap other shared guards, for writers that take turns by themselves. */
  readonly shared?: boolean;
  /** As {@linkcode ClientOptions.passLock}, for this guard. */
  readonly passLock?: string | false;
  /** What the write is for; shown to people. */
  readonly purpose?: string;
  /** Ends the wait, and then the write: it aborts the token's signal. */
  readonly signal?: AbortSignal;
}

/** How to ask. */
export interface AskOptions {
  /** Gives the question up: it throws what the signal aborted with. */
  readonly signal?: AbortSignal;
  /** How long to wait for the answer, in ms, connecting included. Default 10,000; for `stepdown` 120,000. */
  readonly timeoutMs?: number;
}
