/**
 * A host's state directory: what survives its agent.
 * @module
 */
import type { HostMemory } from "../../src/ports/host_memory.ts";
import type { Mutations } from "./mutations.ts";

/** What is on disk. */
export class StateDir {
  readonly incarnations = new Set<string>();
  readonly strangers = new Set<string>();
  readonly graces = new Map<string, number>();
  /** Grants that were begun and not ended, of every incarnation. */
  readonly grants = new Map<string, { store: string; pid: number; lingerMs: number }>();
  /** Until when what gone clients left running may write, by store. */
  readonly left = new Map<string, number>();

  /** Boot times mean nothing after a reboot: each grace is owed whole, and nothing runs on. */
  onReboot(): void {
    this.left.clear();
    for (const store of this.graces.keys()) this.graces.set(store, Infinity);
  }
}

/** The memory port of one incarnation. */
export class SimMemory implements HostMemory {
  readonly previousIncarnations: ReadonlySet<string>;
  readonly strangers: ReadonlySet<string>;
  readonly graces: ReadonlyMap<string, number>;
  readonly problem = null;
  /** The incarnations whose entries it may take over, for the checkers. */
  readonly inherits: ReadonlySet<string>;
  /** Stores for which an earlier incarnation owed a grace, for the checkers. */
  readonly owed: ReadonlySet<string>;
  readonly #dir: StateDir;
  readonly #incarnation: string;
  readonly #alive: (pid: number) => boolean;
  readonly #mutations: Mutations;
  /** Grants of earlier incarnations whose clients may still run. */
  #inherited: { store: string; pid: number }[];
  /** Grants that are not written yet, and lost with the agent: they may not be given. */
  readonly #begun = new Map<string, { store: string; pid: number; lingerMs: number }>();

  constructor(
    dir: StateDir,
    { incarnation, nowMs, alive, mutations, strangers }: {
      incarnation: string;
      /** On the host's CLOCK_BOOTTIME. */
      nowMs: number;
      /** Whether a process of this host still runs. */
      alive: (pid: number) => boolean;
      mutations: Mutations;
      /** Incarnations of other hosts, taken for ours where that rule is switched off. */
      strangers: ReadonlySet<string>;
    },
  ) {
    this.#dir = dir;
    this.#incarnation = incarnation;
    this.#alive = alive;
    this.#mutations = mutations;
    this.previousIncarnations = mutations.provenDead ? new Set(dir.incarnations) : strangers;
    this.strangers = mutations.strangerMemory ? new Set(dir.strangers) : new Set();
    this.graces = mutations.graceMemory ? new Map(dir.graces) : new Map();
    this.#inherited = [...dir.grants.values()];
    this.inherits = new Set(dir.incarnations);
    this.owed = new Set(dir.graces.keys());
    dir.incarnations.add(incarnation);
    for (const { store, lingerMs } of dir.grants.values()) {
      if (lingerMs > 0) this.#leave(store, nowMs + lingerMs);
    }
  }

  clientsGone(store: string): boolean {
    if (!this.#mutations.journal) return true;
    return !this.#inherited.some((grant) => grant.store === store && this.#alive(grant.pid));
  }

  rememberStranger(store: string): null {
    this.#dir.strangers.add(store);
    return null;
  }

  forgetStranger(store: string): null {
    this.#dir.strangers.delete(store);
    return null;
  }

  rememberGrace(store: string, untilMs: number): null {
    this.#dir.graces.set(store, untilMs);
    return null;
  }

  forgetGrace(store: string): null {
    this.#dir.graces.delete(store);
    this.#inherited = this.#inherited.filter((grant) => grant.store !== store);
    return null;
  }

  lingerUntilMs(store: string): number {
    return this.#mutations.leftovers ? this.#dir.left.get(store) ?? 0 : 0;
  }

  beginGrant(
    id: number,
    { store, pid, lingerMs }: { store: string; epoch: number; pid: number; lingerMs: number },
  ): void {
    this.#begun.set(`${this.#incarnation} ${id}`, { store, pid, lingerMs });
  }

  tryJournal(): null {
    return null;
  }

  secureGrant(): null {
    for (const [key, grant] of this.#begun) this.#dir.grants.set(key, grant);
    this.#begun.clear();
    return null;
  }

  endGrant(id: number, lingerUntilMs: number): void {
    const key = `${this.#incarnation} ${id}`;
    this.#begun.delete(key);
    const grant = this.#dir.grants.get(key);
    if (grant !== undefined) this.#leave(grant.store, lingerUntilMs);
    this.#dir.grants.delete(key);
  }

  #leave(store: string, untilMs: number): void {
    this.#dir.left.set(store, Math.max(untilMs, this.#dir.left.get(store) ?? 0));
  }
}
