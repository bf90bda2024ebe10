/**
 * The callers of an agent: carries to them what the core decided on their guards, grants and
 * questions.
 * @module
 */
import type { Refusal } from "../lease/errors.ts";
import * as refuse from "../lease/refusals.ts";
import type { StoreEvent } from "../lease/store_events.ts";
import type { CallerEffect } from "./effects.ts";
import { type GuardEntry, Requests } from "./requests.ts";
import type { Slot } from "./slot.ts";
import type {
  AgentOptions,
  AgentPorts,
  Answer,
  Client,
  Granted,
  GuardParams,
  Left,
  Verified,
} from "./types.ts";

type Limits = Pick<AgentOptions, "maxWaiters" | "maxGrants" | "maxLocks">;
type Granting = Extract<CallerEffect, { type: "granted" }>;

/** Everybody who asked for something. */
export class Callers {
  readonly #ports: AgentPorts;
  readonly #requests = new Requests();

  constructor(ports: AgentPorts) {
    this.#ports = ports;
  }

  /** Guards waiting and grants out. */
  get counts(): { waiters: number; grants: number } {
    const { waiters, grants } = this.#requests;
    return { waiters, grants };
  }

  /** Why this client may not ask for another guard; null if it may. */
  overLimit(client: Client, store: string, limits: Limits): Refusal | null {
    const { maxWaiters, maxGrants, maxLocks } = limits;
    const { waiters, grants } = this.counts;
    if (waiters + grants >= maxLocks) {
      return refuse.limit(store, `${maxLocks} guards and grants need all descriptors (ulimit -n)`);
    }
    if (waiters >= maxWaiters) {
      return refuse.limit(store, `${maxWaiters} guards are waiting already (--max-waiters)`);
    }
    return this.#requests.of(client) < maxGrants ? null : refuse.limit(
      store,
      `this connection has ${maxGrants} guards and grants (--max-grants)`,
    );
  }

  /** Notes a guard; returns the number it has in the core. */
  guard(slot: Slot, client: Client, params: GuardParams, answer: Answer<Granted>): number {
    const id = this.#requests.nextId();
    const startedMs = this.#ports.clock.bootMs();
    const ungranted = { token: null, lockFd: null };
    this.#requests.add({ id, slot, client, params, answer, startedMs, ...ungranted });
    return id;
  }

  /** Notes a verify; returns its number. */
  verify(answer: Answer<Verified>): number {
    const id = this.#requests.nextId();
    this.#requests.verifies.set(id, answer);
    return id;
  }

  /** Notes a question whether a store is held; returns its number. */
  ask(done: (held: boolean) => void): number {
    const id = this.#requests.nextId();
    this.#requests.questions.set(id, done);
    return id;
  }

  /** The grant that a token proves. */
  byToken(token: string): GuardEntry | undefined {
    return this.#requests.byToken(token);
  }

  /** Whether a guard or grant is not over yet. */
  has(id: number): boolean {
    return this.#requests.guards.has(id);
  }

  /** The guards and grants of a client that is gone. */
  ofClient(client: Client): GuardEntry[] {
    return this.#requests.ofClient(client);
  }

  /** Answers a question. */
  answer(id: number, held: boolean): void {
    const done = this.#requests.questions.get(id);
    this.#requests.questions.delete(id);
    done?.(held);
  }

  /** Carries out what concerns a caller. */
  perform(
    slot: Slot,
    effect: Exclude<CallerEffect, { type: "note" | "granted" | "answer" }>,
  ): void {
    switch (effect.type) {
      case "refused":
        return this.#refuse(effect.id, effect.refusal);
      case "verified": {
        const { epoch, revision } = effect;
        const remainingMs = effect.deadlineMs - this.#ports.clock.bootMs();
        const store = slot.store.code;
        return this.#takeVerify(effect.id)?.ok({ store, epoch, revision, remainingMs });
      }
      case "verify_failed":
        return this.#takeVerify(effect.id)?.fail(effect.refusal);
      case "expiring":
      case "renewed":
        return this.#tellDeadline(effect.type, effect.id, effect.deadlineMs);
      case "grant_lost":
        return this.#tellLost(effect.id, effect.refusal, effect.deadlineMs);
      case "grant_ended":
        return this.#ended(slot, effect.id, effect.lingerUntilMs);
    }
  }

  /**
   * Gives a grant to its client, unless the setup is contradicted, it cannot be journaled, or its
   * deadline has come meanwhile. Returns the events that the core has to be told if it was not given;
   * none if it was.
   */
  grant(slot: Slot, effect: Granting, misconfigured: string | null): StoreEvent[] {
    const end: StoreEvent = { type: "end", id: effect.id, gone: false };
    const entry = this.#requests.guards.get(effect.id);
    const lock = slot.locks?.get(effect.lockId);
    if (entry === undefined || lock === undefined || !("fd" in lock)) return [end];
    const store = slot.store.code;
    const unsafe = misconfigured === null ? this.#ports.memory.secureGrant(effect.id) : null;
    const nowMs = this.#ports.clock.bootMs();
    const remainingMs = effect.deadlineMs - nowMs;
    const why = objection(store, { misconfigured, unsafe, remainingMs });
    if (why !== null) {
      this.#refuse(effect.id, why);
      return unsafe === null ? [end] : [end, { type: "not_journaled", message: unsafe }];
    }
    if (entry.params.passLock) lock.passed = true;
    const token = this.#ports.newToken();
    this.#requests.grant(entry, { token, lockFd: lock.fd });
    this.#ports.observer.guarded(store, "granted", nowMs - entry.startedMs);
    const { epoch, revision, deadlineMs } = effect;
    const { path: lockPath, fd } = lock;
    entry.answer.ok({ token, store, epoch, revision, deadlineMs, remainingMs, lockPath, fd });
    return [];
  }

  /** The guard or grant is over; what its client left running may write until `lingerUntilMs`. */
  forget(id: number, lingerUntilMs = 0): GuardEntry | undefined {
    this.#ports.memory.endGrant(id, lingerUntilMs);
    return this.#requests.remove(id);
  }

  #ended(slot: Slot, id: number, untilMs: number): void {
    const entry = this.forget(id, untilMs);
    if (!entry?.token || untilMs === 0) return;
    this.#left(entry, { store: slot.store.code, token: entry.token, untilMs, gone: true });
  }

  #refuse(id: number, refusal: Refusal): void {
    const entry = this.forget(id);
    if (entry === undefined) return;
    const tookMs = this.#ports.clock.bootMs() - entry.startedMs;
    this.#ports.observer.guarded(entry.params.store, refusal.kind, tookMs);
    entry.answer.fail(refusal);
  }

  #tellDeadline(change: "expiring" | "renewed", id: number, deadlineMs: number): void {
    const entry = this.#requests.guards.get(id);
    if (entry === undefined || entry.token === null) return;
    const { token, client, slot } = entry;
    client.deadline(change, { token, store: slot.store.code, deadlineMs });
  }

  #tellLost(id: number, { kind, message }: Refusal, untilMs: number): void {
    const entry = this.#requests.guards.get(id);
    if (entry === undefined || entry.token === null) return;
    const { token, client, params } = entry;
    const { store } = params;
    this.#ports.observer.grantLost(store, kind, client.pid);
    client.lost({ token, store, kind, message });
    if (params.passLock) this.#left(entry, { store, token, untilMs, gone: false });
  }

  #left(
    { client: { uid, pid }, params: { shared } }: GuardEntry,
    left: Pick<Left, "store" | "token" | "untilMs" | "gone">,
  ): void {
    this.#ports.onLeft?.({ ...left, uid, pid, shared });
  }

  #takeVerify(id: number): Answer<Verified> | undefined {
    const answer = this.#requests.verifies.get(id);
    this.#requests.verifies.delete(id);
    return answer;
  }
}

/** What stands against a grant at the last moment; null for nothing. */
function objection(
  store: string,
  { misconfigured, unsafe, remainingMs }: {
    misconfigured: string | null;
    unsafe: string | null;
    remainingMs: number;
  },
): Refusal | null {
  if (misconfigured !== null) return refuse.misconfigured(store, misconfigured);
  if (unsafe !== null) return refuse.misconfigured(store, unsafe);
  return remainingMs > 0 ? null : refuse.unavailable(store, "the lease ran out unrenewed");
}
