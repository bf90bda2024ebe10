/**
 * The journal of grants: which client processes may still be writing after the agent died.
 * @module
 */
import { processExists, processState } from "../sys/proc.ts";
import { LogMap } from "./log_map.ts";

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
}

/** What opening the journal needs to know. */
export interface GrantJournalOptions {
  /** The id of the machine's present boot. */
  readonly boot: string;
}

type Value = Omit<JournaledGrant, "id">;

/**
 * Grants that are out. A grant is journaled before it is given: once written it is in the page
 * cache, which outlives this process; a crash of the machine ends the clients themselves.
 */
export class GrantJournal {
  readonly #grants: LogMap<Value>;
  readonly #boot: string;
  /** The grants that earlier incarnations left unfinished. */
  readonly #inherited: Set<string>;

  /**
   * Opens or creates the journal.
   *
   * @throws what `node:fs` throws when it cannot be opened or read.
   */
  constructor(path: string, options: GrantJournalOptions) {
    this.#boot = options.boot;
    this.#grants = LogMap.open(path, { boot: options.boot, durable: false, decode });
    this.#grants.retain(({ value, boot }) => this.#mayLive(value, boot));
    this.#inherited = new Set(this.#grants.entries.keys());
  }

  /** The lines that could not be read: grants may be missing. */
  get damage(): readonly string[] {
    return this.#grants.damage;
  }

  /** Why the journal is behind; null while it is not. */
  get problem(): string | null {
    return this.#grants.problem;
  }

  /** Journals a grant. Returns null once it may be given, or why it must not. */
  grant(grant: JournaledGrant): string | null {
    const { id, store, epoch, pid, startTime } = grant;
    return this.#grants.setOrForget(id, { store, epoch, pid, startTime });
  }

  /** Journals that a grant has ended, or never began. Returns null, or why that is not on disk. */
  end(id: string): string | null {
    this.#inherited.delete(id);
    return this.#grants.delete(id);
  }

  /**
   * The grants of earlier incarnations whose client process still lives, or may: one that cannot be
   * seen is counted until it is ended here or the machine is started again.
   */
  survivors(): JournaledGrant[] {
    const alive: JournaledGrant[] = [];
    for (const id of this.#inherited) {
      const entry = this.#grants.entries.get(id)!;
      if (this.#mayLive(entry.value, entry.boot)) alive.push({ id, ...entry.value });
      else this.end(id);
    }
    return alive;
  }

  /** Closes the journal. */
  close(): void {
    this.#grants.close();
  }

  #mayLive({ pid, startTime }: Value, boot: string): boolean {
    if (boot !== this.#boot) return false;
    if (pid === 0) return true;
    const state = processState(pid);
    // Where /proc hides other users' processes, that there is one of this number must do.
    if (!state) return processExists(pid);
    return !state.ended && (startTime === null || state.startTime === startTime);
  }
}

function decode(value: unknown): Value | null {
  if (typeof value !== "object" || value === null) return null;
  const { store, epoch, pid, startTime } = value as Partial<Record<keyof Value, unknown>>;
  if (typeof store !== "string" || !isCount(epoch) || !isCount(pid)) return null;
  if (startTime !== null && !isCount(startTime)) return null;
  return { store, epoch, pid, startTime };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
