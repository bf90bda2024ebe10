/**
 * The journal of grants: which client processes, and which processes that clients left behind, may
 * still be writing after the agent died.
 * @module
 */
import { bootTimeMs } from "../sys/boot_time.ts";
import { atTurnEnd } from "../sys/turn.ts";
import { decode, type JournaledGrant, mayLive, Sockets, type Value } from "./journaled_grant.ts";
import { LogMap } from "./log_map.ts";

export { type JournaledGrant } from "./journaled_grant.ts";

/** What opening the journal needs to know. */
export interface GrantJournalOptions {
  /** The id of the machine's present boot. */
  readonly boot: string;
  /** Whether somebody has the store's lock now. Default: nobody ever has. */
  readonly isLocked?: (store: string) => boolean;
}

/** Keys of what was left, as opposed to grants, whose ids begin with an incarnation. */
const LEFT = "left/";

/** When to look again at the lock of what should have been ended: a line in the journal each time, ms. */
const LOOK_AGAIN_MS = 2_000;
/** How many locks are looked at before one grant, which waits for it: 64 take about a millisecond. */
const MAX_LOOKS = 64;

/**
 * Grants that are out. A grant is journaled before it is given: once written it is in the page
 * cache, which outlives this process; a crash of the machine ends the clients themselves.
 *
 * What the grants of one turn of the event loop bring is written at its end, by one write: while the
 * coordinator is asked for their proofs, and before anybody is told that a grant is over. That an end
 * is written late is safe: should the agent be killed in between, the next one takes a grant for given
 * that is over, and waits for its client.
 */
export class GrantJournal {
  readonly #grants: LogMap<Value>;
  readonly #boot: string;
  readonly #isLocked: (store: string) => boolean;
  /** The grants that earlier incarnations left unfinished, by store. */
  readonly #inherited = new Map<string, Set<string>>();
  /** The longest `lingerMs` of any grant of an earlier incarnation; see there. */
  readonly inheritedMs: number;
  /** Until when what gone clients left running may write, by store. */
  readonly #left = new Map<string, number>();
  /** Grants that were begun since the last write. */
  #begun: string[] = [];
  /** Grants that could not be written, and why. */
  readonly #refused = new Map<string, string>();
  #scheduled = false;

  /**
   * Opens or creates the journal.
   *
   * @throws what `node:fs` throws when it cannot be opened or read.
   */
  constructor(path: string, options: GrantJournalOptions) {
    this.#boot = options.boot;
    this.#isLocked = options.isLocked ?? (() => false);
    this.#grants = LogMap.open(path, { boot: options.boot, durable: false, decode });
    const nowMs = bootTimeMs();
    const lingering = new Map<string, number>();
    const sockets = new Sockets();
    let inheritedMs = 0;
    this.#grants.retain(({ value, boot }) => {
      if (boot !== this.#boot) return false;
      const { store, lingerMs = 0, leftUntilMs } = value;
      inheritedMs = Math.max(inheritedMs, lingerMs);
      const untilMs = leftUntilMs === undefined
        ? nowMs + lingerMs
        : this.#leftUntilMs(store, leftUntilMs, nowMs);
      lingering.set(store, Math.max(lingering.get(store) ?? 0, untilMs));
      return leftUntilMs === undefined ? mayLive(value, sockets) : untilMs > nowMs;
    });
    this.inheritedMs = inheritedMs;
    for (const [id, { value }] of this.#grants.entries) {
      if (value.leftUntilMs === undefined) this.#inherit(value.store, id);
    }
    // From its death on no agent told anybody a new deadline.
    const byTime = [...lingering].toSorted(([, a], [, b]) => a - b);
    for (const [store, untilMs] of byTime) if (untilMs > nowMs) this.#leave(store, untilMs);
    this.#grants.flush();
  }

  /** The lines that could not be read: grants may be missing. */
  get damage(): readonly string[] {
    return this.#grants.damage;
  }

  /** Writes what could not be written before. Returns null once the journal has all, or why it has not. */
  catchUp(): string | null {
    return this.#grants.catchUp();
  }

  /** Tries to write. Null: grants can be journaled; or why not. */
  tryWrite(): string | null {
    return this.#grants.tryWrite();
  }

  /** Journals a grant, at the end of this turn of the event loop; see {@linkcode secure}. */
  grant(grant: JournaledGrant): void {
    this.#forgetLeft();
    const { id, store, epoch, pid, startTime, socket = 0, lingerMs = 0 } = grant;
    const linger = lingerMs > 0 ? { lingerMs: Math.ceil(lingerMs) } : {};
    const end = socket > 0 ? { socket } : {};
    this.#grants.setLater(id, { store, epoch, pid, startTime, ...end, ...linger });
    this.#begun.push(id);
    this.#writeSoon();
  }

  /** Null once the grant is written and may be given, which is seen to now; or why it must not be. */
  secure(id: string): string | null {
    if (this.#begun.length > 0) this.#write();
    return this.#refused.size === 0 ? null : this.#refused.get(id) ?? null;
  }

  /**
   * Journals that a grant has ended, or never began; what its client left running may write until
   * CLOCK_BOOTTIME reads `leftUntilMs`. Written at the end of this turn of the event loop.
   */
  end(id: string, leftUntilMs = 0): void {
    this.#refused.delete(id);
    const store = this.#grants.entries.get(id)?.value.store;
    if (store === undefined) return;
    if (leftUntilMs > 0 && leftUntilMs > bootTimeMs()) this.#leave(store, leftUntilMs);
    const ids = this.#inherited.get(store);
    if (ids?.delete(id) && ids.size === 0) this.#inherited.delete(store);
    this.#grants.deleteLater(id);
    this.#writeSoon();
  }

  /** Ends the grants of earlier incarnations (on one store, if given): their deadlines are past. */
  endInherited(store?: string): void {
    const stores = store === undefined ? [...this.#inherited.keys()] : [store];
    for (const each of stores) {
      for (const id of [...this.#inherited.get(each) ?? []]) this.end(id);
    }
  }

  /**
   * The grants of earlier incarnations (on one store, if given) whose client process still lives, or
   * may: one that cannot be seen is counted until it is ended here or the machine is started again.
   */
  survivors(store?: string): JournaledGrant[] {
    const ids = store === undefined
      ? [...this.#inherited.values()].flatMap((each) => [...each])
      : [...this.#inherited.get(store) ?? []];
    const sockets = new Sockets();
    return ids.flatMap((id) => {
      const { value } = this.#grants.entries.get(id)!;
      if (mayLive(value, sockets)) return [{ id, ...value }];
      this.end(id);
      return [];
    });
  }

  /** The stores in which clients of earlier incarnations, or what they left running, may still write. */
  get unfinished(): Set<string> {
    const left = [...this.#left.keys()].filter((store) => this.lingerUntilMs(store) > 0);
    return new Set([...this.#inherited.keys(), ...left]);
  }

  /** Until when, on CLOCK_BOOTTIME, what gone clients left running in a store may write; 0: nothing. */
  lingerUntilMs(store: string): number {
    const untilMs = this.#left.get(store) ?? 0;
    return untilMs > bootTimeMs() ? untilMs : 0;
  }

  /** Closes the journal. */
  close(): void {
    this.#grants.close();
  }

  #writeSoon(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    atTurnEnd("write", this.#onTurnEnd);
  }

  readonly #onTurnEnd = (): void => {
    this.#scheduled = false;
    this.#write();
  };

  #write(): void {
    const begun = this.#begun;
    this.#begun = [];
    const failed = this.#grants.flush();
    if (failed === null) return;
    for (const id of begun) {
      // One that has ended meanwhile asks no more.
      if (this.#grants.entries.has(id)) this.#refused.set(id, failed);
      this.#grants.forget(id);
    }
  }

  #inherit(store: string, id: string): void {
    const ids = this.#inherited.get(store);
    if (ids === undefined) this.#inherited.set(store, new Set([id]));
    else ids.add(id);
  }

  /** One entry a store, however many clients went. */
  #leave(store: string, untilMs: number): void {
    if (untilMs <= (this.#left.get(store) ?? 0)) return;
    this.#left.delete(store);
    this.#left.set(store, untilMs);
    const value = { store, epoch: 0, pid: 0, startTime: null, leftUntilMs: Math.ceil(untilMs) };
    this.#grants.setLater(LEFT + store, value);
    this.#writeSoon();
  }

  /** Forgets what is past; about in the order of time, which does here. */
  #forgetLeft(): void {
    if (this.#left.size === 0) return;
    const nowMs = bootTimeMs();
    let looks = 0;
    for (const [store, untilMs] of this.#left) {
      if (untilMs > nowMs || looks++ === MAX_LOOKS) return;
      const nextMs = this.#leftUntilMs(store, untilMs, nowMs);
      if (nextMs > nowMs) {
        this.#leave(store, nextMs);
        continue;
      }
      this.#left.delete(store);
      this.#grants.deleteLater(LEFT + store);
    }
  }

  /**
   * Until when what was left is to be reckoned with. Nobody may have ended it: then it writes for as long
   * as it has the lock, also when the agent is started once more.
   */
  #leftUntilMs(store: string, untilMs: number, nowMs: number): number {
    return untilMs > nowMs || !this.#isLocked(store) ? untilMs : nowMs + LOOK_AGAIN_MS;
  }
}
