/**
 * Carries the core's requests out: coordinator, locks, host memory. What comes of them goes back in
 * as events, which are handled after the event that asked, never within it.
 * @module
 */
import type { LeaseEvent } from "../lease/state.ts";
import type { StoreEffect, StoreEvent } from "../lease/store_events.ts";
import type { Outcome, TenureRead } from "../ports/coordinator.ts";
import type { HeldLock } from "../ports/lock_file.ts";
import { failureOf, lockRefusalOf, onDiskOf, probeLock } from "./lock_probe.ts";
import type { Slot, SlotLock } from "./slot.ts";
import type { AgentOptions, AgentPorts } from "./types.ts";
import { Window } from "./window.ts";

/**
 * How many grants of one store may have its lock one after the other without it being free in between:
 * others on this host who wait for it must get it some time, too.
 */
const MAX_HAND_OVERS = 64;

type Send = (slot: Slot, event: StoreEvent) => void;

/** What a store asks of the world, as opposed to its callers. */
export type WorldEffect = Extract<
  StoreEffect,
  {
    type:
      | "put_entry"
      | "delete_entry"
      | "read_entry"
      | "read_tenure"
      | "put_tenure"
      | "remember_stranger"
      | "forget_stranger"
      | "remember_grace"
      | "forget_grace"
      | "lock"
      | "unlock"
      | "check_lock"
      | "probe_lock"
      | "write_fence";
  }
>;

/** Effects that concern callers and watchers, not the world. */
export type CallerEffect = Exclude<StoreEffect, WorldEffect | { type: "wake" | "defer" }>;

/** Carries effects out. */
export class World {
  readonly #options: AgentOptions;
  readonly #ports: AgentPorts;
  readonly #send: Send;
  /** How many requests that nobody waits for may be in flight. */
  readonly window = new Window();
  /** When the newest write of an entry was sent, and the newest that was answered; how long answers take. */
  readonly writes = { sentMs: -Infinity, answeredMs: -Infinity, rttMs: 0 };
  #inFlight = 0;
  /** A lock given up by the event that is being handled, for whoever takes it by the same event. */
  #spare: HeldLock | null = null;

  constructor(options: AgentOptions, ports: AgentPorts, send: Send) {
    this.#options = options;
    this.#ports = ports;
    this.#send = send;
  }

  /** Requests to the coordinator that are not answered yet. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Carries one effect out, at once. */
  perform(slot: Slot, effect: WorldEffect): void {
    const { code } = slot.store;
    const { coordinator, memory } = this.#ports;
    switch (effect.type) {
      case "put_entry":
        return coordinator.putEntry(code, effect.expect, this.#reply(slot, "put_done", effect));
      case "delete_entry":
        return coordinator.deleteEntry(
          code,
          effect.expect,
          this.#reply(slot, "delete_done", effect),
        );
      case "read_entry":
        return coordinator.readEntry(code, this.#reply(slot, "entry_read", effect));
      case "read_tenure":
        return this.#readTenure(slot, effect);
      case "put_tenure":
        return this.#putTenure(slot, effect);
      case "remember_stranger":
        return void memory.rememberStranger(code);
      case "forget_stranger":
        return void memory.forgetStranger(code);
      case "remember_grace":
        return void memory.rememberGrace(code, effect.untilMs);
      case "forget_grace":
        return void memory.forgetGrace(code);
      case "lock":
        return this.#lock(slot, effect.lockId, effect.untilMs);
      case "unlock":
        return this.#unlock(slot, effect.lockId);
      case "check_lock": {
        const current = this.#held(slot, effect.lockId)?.current() ?? false;
        return this.#send(slot, { type: "lock_checked", lockId: effect.lockId, current });
      }
      case "probe_lock":
        return this.#probe(slot, effect.fully);
      case "write_fence":
        return this.#writeFence(slot, effect);
    }
  }

  /**
   * Whether nobody has the store locked. A client that died can have left a process behind that
   * writes on, and has the lock: the journal of grants does not know it.
   */
  isUnlocked(store: string): boolean {
    const found = probeLock(this.#ports.locks, store)?.kind;
    return found === "locked" || found === "unknown_store";
  }

  #probe(slot: Slot, fully: boolean): void {
    this.closeSpare();
    const { locks, memory } = this.#ports;
    const found = probeLock(locks, slot.store.code, { writes: fully });
    // What cannot be journaled cannot be granted, either.
    const behind = fully ? memory.tryJournal() : null;
    this.#send(slot, {
      type: "lock_probed",
      fully,
      // A lock file that cannot be used is nobody's.
      free: found?.kind !== "busy",
      failure: failureOf(found) ?? (behind === null ? null : { kind: "error", message: behind }),
      onDisk: found?.kind === "locked" ? found.onDisk : null,
    });
  }

  /** Gives up every lock of a store; the agent ends. */
  close(slot: Slot): void {
    for (const lockId of [...slot.locks?.keys() ?? []]) this.#unlock(slot, lockId);
    this.closeSpare();
  }

  #reply<T>(
    slot: Slot,
    type: Exclude<LeaseEvent["type"], "acquire" | "prove" | "release" | "tick" | "connected">,
    { seq }: { seq: number },
  ): (outcome: Outcome<T>) => void {
    this.#inFlight++;
    const timed = this.window.wantsSample;
    const sentMs = this.#ports.clock.bootMs();
    if (timed) this.window.sent(sentMs);
    // The records are another stream, with a leader of its own.
    const { writes } = this;
    if (type === "put_done") writes.sentMs = sentMs;
    return (outcome) => {
      this.#inFlight--;
      if (type === "put_done" && outcome.kind !== "unknown") {
        writes.answeredMs = Math.max(writes.answeredMs, sentMs);
        writes.rttMs = Math.max(this.#ports.clock.bootMs() - sentMs, 0.9 * writes.rttMs);
      }
      if (timed) this.window.answered(this.#ports.clock.bootMs(), outcome.kind !== "unknown");
      this.#send(slot, { type: "lease", event: { type, seq, outcome } as unknown as LeaseEvent });
    };
  }

  /**
   * Reads the newest tenure record, or takes what was heard of it: at a start with very many stores
   * that halves what there is to read. A record heard of may be old, as may one that was read: ours is
   * written on its revision by compare-and-set, and after a conflict it is read.
   */
  #readTenure(slot: Slot, effect: Extract<WorldEffect, { type: "read_tenure" }>): void {
    const { heard, store } = slot;
    slot.heard = null;
    // Whom to name as the holder is not written by compare-and-set: that is read.
    if (heard === null || store.lease.phase !== "ours") {
      const reply = this.#reply<TenureRead>(slot, "tenure_read", effect);
      return this.#ports.coordinator.readTenure(store.code, reply);
    }
    const outcome = { kind: "ok", value: heard } as const;
    this.#send(slot, {
      type: "lease",
      event: { type: "tenure_read", seq: effect.seq, outcome },
    });
  }

  #putTenure(slot: Slot, effect: Extract<WorldEffect, { type: "put_tenure" }>): void {
    const { node, incarnation, address } = this.#options;
    const { clock, coordinator } = this.#ports;
    const wallMs = clock.wallMs();
    const acquiredMs = wallMs - (clock.bootMs() - effect.acquiredAtMs);
    // Once for a tenure: the two clocks drift apart, and the record must not change when it is closed.
    if (effect.released === null) slot.sinceMs = acquiredMs;
    const record = {
      node,
      incarnation,
      address,
      epoch: effect.epoch,
      acquired_at: new Date(slot.sinceMs ?? acquiredMs).toISOString(),
      ...(effect.released === null
        ? {}
        : { released_at: new Date(wallMs).toISOString(), reason: effect.released }),
      // Rounded up it would grow each time that it is passed on.
      ...(effect.owedMs ? { ttlMs: Math.round(effect.owedMs) } : {}),
    };
    const reply = this.#reply<number>(slot, "tenure_put", effect);
    coordinator.putTenure(slot.store.code, effect.expect, record, reply);
  }

  #lock(slot: Slot, lockId: number, untilMs: number): void {
    const next = this.#takeSpare();
    if (next !== null) return this.#locked(slot, lockId, next);
    // Not before it is free: a second description of ours would wait for the first.
    this.closeSpare();
    let answered = false;
    const cancel = this.#ports.locks.lock(slot.store.code, untilMs, (result) => {
      answered = true;
      if (result.kind === "locked") return this.#locked(slot, lockId, result);
      forgetLock(slot, lockId);
      const failure = lockRefusalOf(result, this.#ports.locks.path(slot.store.code));
      this.#send(slot, { type: "lock_failed", lockId, failure });
    });
    if (!answered) locksOf(slot).set(lockId, { cancel });
  }

  #locked(slot: Slot, lockId: number, lock: HeldLock): void {
    locksOf(slot).set(lockId, lock);
    this.#send(slot, { type: "locked", lockId, onDisk: onDiskOf(slot.store.code, lock.fence) });
  }

  #unlock(slot: Slot, lockId: number): void {
    const lock = slot.locks?.get(lockId);
    if (lock === undefined) return;
    forgetLock(slot, lockId);
    if ("cancel" in lock) return lock.cancel();
    // Whoever was given the descriptor may have it still: then the next in turn has to wait.
    if (lock.passed || this.#spare !== null) lock.close();
    else this.#spare = lock;
  }

  /** The lock that was given up a moment ago, for the next in turn. */
  #takeSpare(): HeldLock | null {
    const spare = this.#spare;
    if (spare === null || spare.handOvers >= MAX_HAND_OVERS) return null;
    let next: HeldLock | null = null;
    try {
      next = spare.handOver();
    } catch {
      // It cannot be read: locking it anew says why.
    }
    if (next !== null) this.#spare = null;
    return next;
  }

  /** The event is handled: a lock that it gave up and nobody took is free for everybody. */
  closeSpare(): void {
    this.#spare?.close();
    this.#spare = null;
  }

  #held(slot: Slot, lockId: number): HeldLock | undefined {
    const lock = slot.locks?.get(lockId);
    return lock === undefined || "cancel" in lock ? undefined : lock;
  }

  /** Writes the fence; the grant that may come of it has to be in the journal before it is given. */
  #writeFence(slot: Slot, effect: Extract<WorldEffect, { type: "write_fence" }>): void {
    const { guardId, epoch, pid, socket, lingerMs } = effect;
    const { code } = slot.store;
    const { clock, memory } = this.#ports;
    memory.beginGrant(guardId, { store: code, epoch, pid, socket, lingerMs });
    const lock = this.#held(slot, effect.lockId);
    const error = lock === undefined ? "its lock is not held" : lock.writeFence({
      store: code,
      node: this.#options.node,
      incarnation: this.#options.incarnation,
      epoch,
      pid,
      at: new Date(clock.wallMs()).toISOString(),
    });
    this.#send(slot, { type: "fence_written", guardId, error });
  }
}

function locksOf(slot: Slot): Map<number, SlotLock> {
  return slot.locks ??= new Map();
}

function forgetLock(slot: Slot, lockId: number): void {
  slot.locks?.delete(lockId);
  if (slot.locks?.size === 0) slot.locks = null;
}
