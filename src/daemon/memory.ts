/**
 * The state directory as the agent's memory.
 * @module
 */
import type { StateDir } from "../disk/state_dir.ts";
import type { HostMemory } from "../ports/host_memory.ts";
import { processStartTime } from "../sys/proc.ts";

/** {@linkcode HostMemory} on a state directory. */
export class StateMemory implements HostMemory {
  readonly previousIncarnations: ReadonlySet<string>;
  readonly strangers: ReadonlySet<string>;
  readonly #state: StateDir;
  readonly #incarnation: string;
  readonly #graces: Map<string, number>;
  /** Stores with grants of earlier incarnations whose clients may still live. */
  readonly #inherited: Set<string>;
  /** Start times of connected clients, read once: a grant's journal entry must not be slow. */
  readonly #startTimes = new Map<number, { startTime: number | null; connections: number }>();

  constructor(state: StateDir, incarnation: string) {
    this.#state = state;
    this.#incarnation = incarnation;
    this.previousIncarnations = state.previousIncarnations;
    this.strangers = state.strangers;
    this.#graces = state.graces();
    this.#inherited = new Set(state.journal.survivors().map(({ store }) => store));
  }

  get graces(): ReadonlyMap<string, number> {
    return this.#graces;
  }

  get problem(): string | null {
    return this.#state.problem;
  }

  clientsGone(store: string): boolean {
    if (!this.#inherited.has(store)) return true;
    const alive = this.#state.journal.survivors().some((grant) => grant.store === store);
    if (!alive) this.#inherited.delete(store);
    return !alive;
  }

  rememberStranger(store: string): string | null {
    return this.#state.rememberStranger(store);
  }

  forgetStranger(store: string): string | null {
    return this.#state.forgetStranger(store);
  }

  rememberGrace(store: string, untilMs: number): string | null {
    this.#graces.set(store, untilMs);
    return this.#state.rememberGrace(store, untilMs);
  }

  forgetGrace(store: string): string | null {
    this.#graces.delete(store);
    return this.#state.forgetGrace(store);
  }

  beginGrant(id: number, grant: { store: string; epoch: number; pid: number }): string | null {
    const startTime = this.#startTimes.get(grant.pid)?.startTime ?? null;
    return this.#state.journal.grant({ id: this.#name(id), ...grant, startTime });
  }

  endGrant(id: number): string | null {
    return this.#state.journal.end(this.#name(id));
  }

  /** A process connected: what tells it apart from a later one of the same number. */
  clientConnected(pid: number): void {
    const known = this.#startTimes.get(pid);
    if (known !== undefined) known.connections++;
    else this.#startTimes.set(pid, { startTime: processStartTime(pid), connections: 1 });
  }

  /** One of its connections closed. */
  clientGone(pid: number): void {
    const known = this.#startTimes.get(pid);
    if (known !== undefined && --known.connections === 0) this.#startTimes.delete(pid);
  }

  #name(id: number): string {
    return `${this.#incarnation}:${id}`;
  }
}
