/**
 * The stores of an agent, and the loop that handles what happens to them: an event in, effects out,
 * the events those bring, one after the other.
 * @module
 */
import type { Inheritance, LeaseContext } from "../lease/state.ts";
import { Store } from "../lease/store.ts";
import type { StoreEffect, StoreEvent } from "../lease/store_events.ts";
import type { BucketsSeen } from "../ports/coordinator.ts";
import { Alarm } from "./alarm.ts";
import { Context } from "./context.ts";
import { type CallerEffect, World } from "./effects.ts";
import { Pacer } from "./pacer.ts";
import { newSlot, type Slot } from "./slot.ts";
import { CROWD, mayWait } from "./renewals.ts";
import { Tally } from "./tally.ts";
import type { AgentOptions, AgentPorts, Counts } from "./types.ts";

/** No store is ticked more often: a slip in the core must not become a busy loop. */
const MIN_WAKE_MS = 1;

const TICK: StoreEvent = { type: "tick" };
const CONNECTED: StoreEvent = { type: "connected" };
const DISCONNECTED: StoreEvent = { type: "disconnected" };

/** The engine's way to its agent. */
export interface EngineHooks {
  perform(slot: Slot, effect: CallerEffect): void;
  /** A store has become known. */
  added(slot: Slot): void;
  /** An event of the store was handled. */
  handled(slot: Slot): void;
  /** Nothing needs the store any more; what is asked of it later concerns another slot. */
  forgotten(slot: Slot): void;
}

/** Drives the stores. */
export class Engine {
  readonly slots = new Map<string, Slot>();
  readonly #ports: AgentPorts;
  readonly #hooks: EngineHooks;
  readonly #world: World;
  readonly #alarm: Alarm;
  readonly #pending: { slot: Slot; event: StoreEvent }[] = [];
  readonly #pacer: Pacer;
  readonly #tally = new Tally();
  #pinned: ReadonlySet<string> = new Set();
  #handling = false;
  readonly #context: Context;
  /** When the newest event was handled. */
  #handledMs = 0;
  /** The store whose event is being handled. */
  #current = "";

  constructor(options: AgentOptions, ports: AgentPorts, hooks: EngineHooks) {
    this.#ports = ports;
    this.#hooks = hooks;
    this.#world = new World(options, ports, (slot, event) => this.dispatch(slot, event));
    this.#alarm = new Alarm(ports, {
      tick: (slot) => {
        this.#run(slot, TICK);
        return this.#handledMs;
      },
      mayWait: ({ store }, nowMs) =>
        this.#world.inFlight >= CROWD && mayWait(store, nowMs, this.context),
      ticked: () => this.#drain(),
    });
    this.#pacer = new Pacer(ports.timers, {
      inFlight: () => this.#world.inFlight,
      window: () => this.#world.window.size,
      lateMs: () => this.overdueMs,
      run: (slot, what) => this.#run(slot, what === "tick" ? TICK : CONNECTED),
    });
    this.#context = new Context(options, ports, {
      hasRoom: () => this.#pacer.hasRoom,
      writes: this.#world.writes,
      inherits: (id) => this.#inherits(id),
    });
  }

  get ttlKnown(): boolean {
    return this.#context.ttlKnown;
  }

  /** What the stores may look at. */
  get context(): LeaseContext {
    return this.#context.now;
  }

  /** How late the most overdue store is, in milliseconds: 0 while timers are in time. */
  get overdueMs(): number {
    return this.#alarm.overdueMs;
  }

  /** Whether every hold lasts for long enough that clients may be told to count on it. */
  get mayVouch(): boolean {
    const nowMs = this.#ports.clock.bootMs();
    return this.#tally.nearest.isFar(this.slots.values(), nowMs, this.context);
  }

  /** How many stores are what; `mute`: none counts as held. */
  counts(mute: boolean): Pick<Counts, "held" | "waiting" | "foreign"> {
    // Whoever is late to be ticked may not be any more what it was counted as.
    const counts = this.overdueMs === 0
      ? this.#tally.counts
      : Tally.count(this.slots.values(), this.#ports.clock.bootMs(), this.context);
    return mute ? { ...counts, held: 0, waiting: counts.waiting + counts.held } : counts;
  }

  /** How long ago the renewal was due that has waited longest for its acknowledgement; in ms. */
  get renewalOverdueMs(): number {
    const nowMs = this.#ports.clock.bootMs();
    // While disconnected, no store is ticked to be renewed, so none is noted to be late.
    const noted = this.context.connected && this.overdueMs === 0 && this.#world.inFlight < CROWD;
    return noted
      ? this.#tally.overdueMs(nowMs, this.context)
      : Tally.overdueMs(this.slots.values(), nowMs, this.context);
  }

  /** The TTL is known, or another. */
  setTtl(ttlMs: number): void {
    const beforeMs = this.context.timing.ttlMs;
    const nowMs = this.#ports.clock.bootMs();
    this.#context.setTtl(ttlMs);
    for (const slot of this.slots.values()) {
      this.#tally.note(slot, nowMs, this.context);
      // What is held is over sooner than it was set to be woken for.
      if (ttlMs < beforeMs && slot.store.lease.phase === "ours") this.#pacer.add(slot, "tick");
    }
    this.#drain();
  }

  /** Why the coordinator cannot be used, in words for refusals. */
  setDownReason(downReason: string | undefined): void {
    this.#context.setDownReason(downReason);
  }

  /** What is known of the buckets, now. */
  bucketsSeen(seen: BucketsSeen, ttlBeforeMs: number): void {
    this.#context.setBuckets(seen, ttlBeforeMs);
    if (seen === "known") return;
    // What was heard may be of the ones of before.
    for (const slot of this.slots.values()) slot.heard = null;
  }

  /** The setup contradicts us: who waits is told. Null: not any more; what is wanted is acquired again. */
  setMisconfigured(reason: string | null): void {
    if ((reason !== null) === Boolean(this.context.misconfigured)) return;
    this.#context.setMisconfigured(reason !== null);
    for (const slot of [...this.slots.values()]) {
      if (reason === null) this.#pacer.add(slot, "tick");
      else if (slot.store.waiting > 0) this.dispatch(slot, { type: "misconfigured", reason });
    }
    this.#drain();
  }

  /** The connection came up or went down: those first that somebody writes or waits for. */
  setConnected(connected: boolean): void {
    if (this.context.connected === connected) return;
    this.#context.setConnected(connected);
    if (connected) this.#world.window.reset();
    for (const slot of [...this.slots.values()]) {
      // Another connection may lead to a coordinator that has lost what was heard.
      slot.heard = null;
      if (connected && slot.store.waiting + slot.store.granted === 0) {
        this.#pacer.add(slot, "connected");
      } else this.dispatch(slot, connected ? CONNECTED : DISCONNECTED);
    }
    if (connected) this.#wakePinned();
    this.#drain();
  }

  /** The stores to hold whether or not anybody asks; those left out are held on while asked for. */
  setPinned(codes: ReadonlySet<string>): void {
    for (const code of this.#pinned) {
      const slot = codes.has(code) ? undefined : this.slots.get(code);
      if (slot !== undefined) slot.store.pinned = false;
    }
    this.#pinned = new Set(codes);
    this.#wakePinned();
  }

  #wakePinned(): void {
    for (const code of this.#pinned) {
      const slot = this.slot(code);
      slot.store.pinned = true;
      this.#pacer.add(slot, "tick");
    }
    this.#drain();
  }

  /** The store, made known if it is not, by a question of this user. */
  slot(code: string, uid: number | null = null): Slot {
    const known = this.slots.get(code);
    if (known !== undefined) return known;
    const { memory, clock } = this.#ports;
    const slot = newSlot(
      new Store(code, {
        nowMs: clock.bootMs(),
        pinned: this.#pinned.has(code),
        stranger: memory.strangers.has(code),
        graceUntilMs: memory.graces.get(code) ?? 0,
        lingerUntilMs: memory.lingerUntilMs(code),
      }),
      uid,
    );
    this.slots.set(code, slot);
    this.#hooks.added(slot);
    return slot;
  }

  /** Handles an event, and whatever its effects bring; within another event's handling, after it. */
  dispatch(slot: Slot, event: StoreEvent): void {
    this.#run(slot, event);
    this.#drain();
  }

  #run(slot: Slot, event: StoreEvent): void {
    this.#pending.push({ slot, event });
    if (this.#handling) return;
    this.#handling = true;
    try {
      for (let i = 0; i < this.#pending.length; i++) {
        const next = this.#pending[i];
        this.#handle(next.slot, next.event);
      }
    } finally {
      this.#pending.length = 0;
      this.#handling = false;
    }
    if (event.type === "tick") this.#forget(slot);
    this.#alarm.arm();
  }

  /** Lets go of a store that nothing needs any more; nothing that concerns it is pending. */
  #forget(slot: Slot): void {
    const { store } = slot;
    // A store forgotten before may still be ticked; the one known by its code now is another.
    if (this.slots.get(store.code) !== slot) return;
    if (!store.forgettable(this.#handledMs, this.context)) return;
    this.slots.delete(store.code);
    this.#tally.forget(slot);
    this.#hooks.forgotten(slot);
  }

  #drain(): void {
    if (!this.#handling) this.#pacer.drain();
  }

  /** Lets go of timer and locks at once. */
  close(): void {
    this.#alarm.close();
    for (const slot of this.slots.values()) this.#world.close(slot);
  }

  #handle(slot: Slot, event: StoreEvent): void {
    const { store } = slot;
    this.#current = store.code;
    // Read before any effect goes out: what is sent below is sent no earlier than this.
    const nowMs = this.#handledMs = this.#ports.clock.bootMs();
    for (const effect of store.handle(event, nowMs, this.context)) {
      this.#perform(slot, effect, nowMs);
    }
    this.#world.closeSpare();
    this.#tally.note(slot, nowMs, this.context);
    this.#hooks.handled(slot);
  }

  #perform(slot: Slot, effect: StoreEffect, nowMs: number): void {
    switch (effect.type) {
      case "wake":
        return this.#alarm.set(slot, Math.max(effect.atMs, nowMs + MIN_WAKE_MS), nowMs);
      case "defer":
        return this.#pacer.add(slot, "tick");
      case "note":
      case "granted":
      case "refused":
      case "verified":
      case "verify_failed":
      case "expiring":
      case "renewed":
      case "grant_lost":
      case "grant_ended":
      case "answer":
        return this.#hooks.perform(slot, effect);
      default:
        return this.#world.perform(slot, effect);
    }
  }

  /** What the host's memory knows of an incarnation, for the store whose event is handled. */
  #inherits(incarnation: string): Inheritance | null {
    const { memory } = this.#ports;
    if (!memory.previousIncarnations.has(incarnation)) return null;
    const clientsGone = memory.clientsGone(this.#current) && this.#world.isUnlocked(this.#current);
    return { clientsGone };
  }
}
