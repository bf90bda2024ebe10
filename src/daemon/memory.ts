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
  /** Start times of connected clients, read once: a grant's journal entry must not be slow. */
  readonly #startTimes = new Map<number, { startTime: number | null; connections: number }>();

  constructor(state: StateDir, incarnation: string) {
    this.#state = state;
    this.#incarnation = incarnation;
    this.previousIncarnations = state.previousIncarnations;
    this.strangers = state.strangers;
    this.#graces = state.graces();
  }

  get graces(): ReadonlyMap<string, number> {
    return this.#graces;
  }

  get problem(): string | null {
    return this.#state.problem;
  }

  clientsGone(store: string): boolean {
    return this.#state.journal.survivors(store).length === 0;
  }

  lingerUntilMs(store: string): number {
    return this.#state.journal.lingerUntilMs(store);
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
    this.#state.journal.endInherited(store);
    return this.#state.forgetGrace(store);
  }

  wasClustered(bucket: string): boolean {
    return this.#state.wasClustered(bucket);
  }

  /** Where it is not on disk, `problem` says so. */
  rememberClustered(bucket: string): void {
    this.#state.rememberClustered(bucket);
  }

  madeOf(bucket: string): string | null {
    return this.#state.madeOf(bucket);
  }

  /** Where it is not on disk, `problem` says so. */
  rememberMade(bucket: string, made: string): void {
    this.#state.rememberMade(bucket, made);
  }

  beginGrant(
    id: number,
    { store, epoch, pid, socket, lingerMs }: {
      store: string;
      epoch: number;
      pid: number;
      socket?: number;
      lingerMs: number;
    },
  ): void {
    const startTime = this.#startTimes.get(pid)?.startTime ?? null;
    const grant = { id: this.#name(id), store, epoch, pid, startTime, socket, lingerMs };
    this.#state.journal.grant(grant);
  }

  secureGrant(id: number): string | null {
    return this.#state.journal.secure(this.#name(id));
  }

  tryJournal(): string | null {
    return this.#state.journal.tryWrite();
  }

  endGrant(id: number, lingerUntilMs: number): void {
    this.#state.journal.end(this.#name(id), lingerUntilMs);
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
