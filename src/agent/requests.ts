/**
 * The requests and grants of clients: who asked for what, who holds which token.
 * @module
 */
import { PassingMap } from "../lease/passing_map.ts";
import type { Slot } from "./slot.ts";
import type { Answer, Client, Granted, GuardParams, Verified } from "./types.ts";

/** A guard, and the grant it becomes. */
export interface GuardEntry {
  readonly id: number;
  readonly slot: Slot;
  readonly client: Client;
  readonly params: GuardParams;
  readonly answer: Answer<Granted>;
  readonly startedMs: number;
  /** Null until it is granted. */
  token: string | null;
  /** The locked descriptor, open while it is granted; null before. */
  lockFd: number | null;
}

/** Everything clients are waiting for or hold. */
export class Requests {
  readonly guards = new PassingMap<number, GuardEntry>();
  /** Verifies under way. */
  readonly verifies = new PassingMap<number, Answer<Verified>>();
  /** Questions under way whether a store is held. */
  readonly questions = new PassingMap<number, (held: boolean) => void>();
  readonly #byToken = new PassingMap<string, GuardEntry>();
  readonly #byClient = new PassingMap<number, Set<number>>();
  #lastId = 0;
  #granted = 0;

  /** A number that names a request within the agent. */
  nextId(): number {
    return ++this.#lastId;
  }

  /** Guards that were not answered yet. */
  get waiters(): number {
    return this.guards.size - this.#granted;
  }

  /** Grants that their clients have not let go of. */
  get grants(): number {
    return this.#granted;
  }

  /** How many guards and grants a client has. */
  of(client: Client): number {
    return this.#byClient.get(client.id)?.size ?? 0;
  }

  /** Notes a guard. */
  add(entry: GuardEntry): void {
    this.guards.set(entry.id, entry);
    const ids = this.#byClient.get(entry.client.id);
    if (ids === undefined) this.#byClient.set(entry.client.id, new Set([entry.id]));
    else ids.add(entry.id);
  }

  /** The grant of a token. */
  byToken(token: string): GuardEntry | undefined {
    return this.#byToken.get(token);
  }

  /** The guard was granted; its token is good from now on. */
  grant(entry: GuardEntry, { token, lockFd }: { token: string; lockFd: number }): void {
    entry.token = token;
    entry.lockFd = lockFd;
    this.#byToken.set(token, entry);
    this.#granted++;
  }

  /** The guard or grant is over. */
  remove(id: number): GuardEntry | undefined {
    const entry = this.guards.get(id);
    if (entry === undefined) return undefined;
    this.guards.delete(id);
    if (entry.token !== null) {
      this.#byToken.delete(entry.token);
      this.#granted--;
    }
    const ids = this.#byClient.get(entry.client.id);
    ids?.delete(id);
    if (ids?.size === 0) this.#byClient.delete(entry.client.id);
    return entry;
  }

  /** The guards and grants of a client that is gone. */
  ofClient(client: Client): GuardEntry[] {
    return [...this.#byClient.get(client.id) ?? []].map((id) => this.guards.get(id)!);
  }
}
