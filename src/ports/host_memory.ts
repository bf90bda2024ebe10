/**
 * What a host remembers across restarts of its agent. Writes say null, or why they are not on disk;
 * what is known in memory stays true either way.
 * @module
 */

/** The memory of one host, open for one incarnation. */
export interface HostMemory {
  /** Incarnations that ran here under this node name before, all proven dead. */
  readonly previousIncarnations: ReadonlySet<string>;
  /** Stores in which a foreign entry without a tenure record was seen, no grace served since. */
  readonly strangers: ReadonlySet<string>;
  /** Graces owed and not over, by store, on CLOCK_BOOTTIME; Infinity: owed whole from now. */
  readonly graces: ReadonlyMap<string, number>;
  /** Why the memory may not be there for the next agent, and what to do; null while it will be. */
  readonly problem: string | null;
  /** Whether no client that an earlier incarnation gave a grant on the store can still be running. */
  clientsGone(store: string): boolean;
  /**
   * Until when, on CLOCK_BOOTTIME, what gone clients of earlier incarnations left running with the
   * store's lock may write; 0 where there is nothing.
   */
  lingerUntilMs(store: string): number;
  rememberStranger(store: string): string | null;
  forgetStranger(store: string): string | null;
  rememberGrace(store: string, untilMs: number): string | null;
  /** The grace is over, and with it whatever clients of earlier incarnations might still have written. */
  forgetGrace(store: string): string | null;
  /**
   * Journals a grant that may be about to be given; see {@linkcode secureGrant}. Its client is gone when
   * the process is, and nobody has its end of the connection (`socket`) open. What it may leave
   * running when it goes can write for `lingerMs` at most after the last deadline was told.
   */
  beginGrant(
    id: number,
    grant: { store: string; epoch: number; pid: number; socket?: number; lingerMs: number },
  ): void;
  /** Null: the journal has the grant, so it may be given. Or why it must not be. */
  secureGrant(id: number): string | null;
  /** Tries to write to the journal. Null: grants can be journaled; or why not. */
  tryJournal(): string | null;
  /**
   * Journals that a grant ended, or was not given after all; what its client left running may write
   * until `lingerUntilMs`. It may take a moment to be remembered: at worst, a grant that is over is
   * taken for one that is out.
   */
  endGrant(id: number, lingerUntilMs: number): void;
}
