/**
 * One store: its lease, the guards on their way, the grants out. The agent has one of these for
 * each store it was asked about, and so has the simulator; it is all the logic there is.
 *
 * A store is driven by {@linkcode Store.handle}: an event and the time in, effects out. It keeps no
 * clock, sets no timer, sends nothing, opens nothing.
 * @module
 */
import { initialLease } from "./acquire.ts";
import * as commit from "./commit.ts";
import { isAside } from "./foreign.ts";
import * as granted from "./granted.ts";
import { isOpen, isValid } from "./keep.ts";
import * as queue from "./queue.ts";
import * as notes from "./notes.ts";
import * as refuse from "./refusals.ts";
import type { LeaseContext, LeaseEvent, LeaseState } from "./state.ts";
import { wakeAtMs } from "./step.ts";
import type { StoreEffect, StoreEvent } from "./store_events.ts";
import { type Blocked, isHeld, type Moment, type StoreOptions, StoreState } from "./store_state.ts";
import { type Standing, standingOf, type StoreView, viewOf } from "./store_view.ts";
import * as unfit from "./unfit.ts";

/** One store, from the first question about it until nobody is interested any more. */
export class Store {
  /** Given at start: kept whether or not somebody asks. */
  pinned: boolean;
  /** How many watches want it. */
  watchers = 0;
  readonly #state: StoreState;
  /** When the tick that is on its way comes. */
  #armedMs = Infinity;

  constructor(code: string, options: StoreOptions) {
    this.pinned = options.pinned ?? false;
    const { stranger = false, graceUntilMs = 0, lingerUntilMs = 0, nowMs } = options;
    this.#state = new StoreState(code, initialLease({ stranger, graceUntilMs }), nowMs);
    if (lingerUntilMs > 0) this.#state.grants.linger(lingerUntilMs);
  }

  get code(): string {
    return this.#state.code;
  }

  /** The lease's state; for views, logs and checkers. */
  get lease(): LeaseState {
    return this.#state.lease;
  }

  /** How many guards wait. */
  get waiting(): number {
    const { traffic } = this.#state;
    return traffic === null ? 0 : traffic.queue.size + traffic.passing.size;
  }

  /** How many grants are permissions now. */
  get granted(): number {
    return this.#state.traffic?.grants.liveCount ?? 0;
  }

  /** How many grants their clients have not let go of, permissions or not. */
  get unfinished(): number {
    return this.#state.traffic?.grants.all.size ?? 0;
  }

  /** Whether an attempt to hold it was answered, so that its state can be told from memory. */
  get resolved(): boolean {
    return this.#state.resolved;
  }

  /** The drain in force, for views; null when there is none, or its time is over. */
  drained(nowMs: number): Blocked | null {
    const { blocked } = this.#state;
    return blocked === null || nowMs >= blocked.untilMs ? null : blocked;
  }

  /** Somebody asked about it. */
  touch(nowMs: number): void {
    this.#state.lastAskedMs = nowMs;
  }

  /** Whether a writer of this host may count on the store now. */
  held(nowMs: number, context: LeaseContext): boolean {
    return isHeld(this.#state, nowMs, context);
  }

  /** The state as others see it, from memory. */
  view(nowMs: number, context: LeaseContext): StoreView {
    return viewOf(this.#state, nowMs, context);
  }

  /** What it counts as, from memory. */
  standing(nowMs: number, context: LeaseContext): Standing {
    return standingOf(this.#state, nowMs, context);
  }

  /** Why a grant is none any more, in words; null while it is one. */
  lossOf(id: number, nowMs: number, context: LeaseContext): string | null {
    const { lease, traffic } = this.#state;
    const grant = traffic?.grants.all.get(id);
    if (grant === undefined) return null;
    if (grant.lost !== null) return granted.LOSS[grant.lost];
    // The deadline is compared at use: the loss may not have been noticed yet.
    const valid = lease.phase === "ours" && isValid(lease, nowMs, context);
    return valid ? null : granted.LOSS.deadline;
  }

  /** Whether nothing of it needs to be kept: no hold, nobody waiting, nobody interested. */
  forgettable(nowMs: number, context: LeaseContext): boolean {
    const { lease, traffic, blocked, unfit } = this.#state;
    return isAside(lease) && blocked === null && unfit === null &&
      !this.#wanted(nowMs, context) &&
      (traffic === null || traffic.asks.length === 0 && !traffic.grants.mayStillWrite(nowMs)) &&
      nowMs >= lease.graceUntilMs && !lease.stranger;
  }

  /** What an event leads to. `nowMs` is CLOCK_BOOTTIME, read before any effect is carried out. */
  handle(event: StoreEvent, nowMs: number, context: LeaseContext): StoreEffect[] {
    const m = new Now(this.#state, nowMs, context);
    // Compared at use, like every deadline: no tick may have come yet.
    if (m.store.blocked !== null && nowMs >= m.store.blocked.untilMs) m.store.blocked = null;
    const wasOpen = isOpen(this.#state.lease, nowMs, context);
    if (event.type === "lease") m.stepLease(event.event);
    else {
      // Deadlines are compared at use: whatever comes in, a hold that ran out is lost first.
      m.stepLease({ type: event.type === "connected" ? "connected" : "tick" });
      this.#on(m, event);
    }
    this.#noticeChange(m, wasOpen);
    queue.advance(m);
    queue.keepProven(m);
    this.#maintain(m);
    notes.noticeGivenUp(m);
    this.#arm(m);
    return m.out;
  }

  #on(m: Moment, event: Exclude<StoreEvent, { type: "lease" }>): void {
    switch (event.type) {
      case "tick":
        if (m.nowMs >= this.#armedMs) this.#armedMs = Infinity;
        m.store.rest(m.nowMs);
        return notes.sweep(m);
      case "connected":
        return;
      case "disconnected":
        return notes.onUnreachable(m, m.context.downReason ?? "not connected");
      case "misconfigured":
        return notes.refuseWaiting(m, refuse.misconfigured(this.code, event.reason));
      case "guard":
        return queue.arrive(m, event.guard);
      case "end":
        return notes.onEnd(m, event.id, event.gone);
      case "not_journaled":
        return unfit.beUnfit(m, "lock_file", refuse.misconfigured(this.code, event.message));
      case "verify":
        return granted.onVerify(m, event.id, event.grantId);
      case "ask":
        return notes.onAsk(m, event);
      case "locked":
        return commit.onLocked(m, event.lockId, event.onDisk);
      case "lock_failed":
        return commit.onLockFailed(m, event.lockId, event.failure);
      case "lock_checked":
        return granted.onLockChecked(m, event.lockId, event.current);
      case "fence_written":
        return commit.onFenceWritten(m, event.guardId, event.error);
      case "lock_probed":
        return notes.onProbed(m, event);
      case "drain":
        return notes.onDrain(m, event);
      case "drain_over":
        return notes.beginHoldOff(m);
    }
  }

  /** The lease opened or closed: what waited for it goes on, or begins to wait. */
  #noticeChange(m: Moment, wasOpen: boolean): void {
    const open = isOpen(m.store.lease, m.nowMs, m.context);
    if (open === wasOpen) return;
    if (!open) return queue.waitForCoordinator(m);
    commit.resumeLocked(m);
    queue.advance(m);
    notes.sweep(m);
  }

  #wanted(nowMs: number, context: LeaseContext): boolean {
    const { blocked, traffic, lastAskedMs, lease, unfit } = this.#state;
    if (blocked !== null) return false;
    // In this tenure it was found that nothing can be written here.
    if (lease.phase === "ours" && lease.epoch === unfit?.epoch) return false;
    if (this.pinned || this.watchers > 0) return true;
    if (nowMs - lastAskedMs < context.timing.interestMs) return true;
    if (traffic === null) return false;
    const { queue: waiting, passing, grants } = traffic;
    return waiting.size > 0 || passing.size > 0 || grants.all.size > 0;
  }

  /** Whether a clean release now could overtake a write of ours, or of those who ran here before us. */
  #mayStillWrite(nowMs: number): boolean {
    const { lease, traffic } = this.#state;
    return (traffic?.grants.mayStillWrite(nowMs) ?? false) ||
      (lease.phase === "ours" && lease.awaited !== null);
  }

  /** Tries to hold a wanted store; gives an unwanted one back once no write of ours can run. */
  #maintain(m: Moment): void {
    const { store, nowMs, context } = m;
    const { lease } = store;
    const wanted = this.#wanted(nowMs, context);
    if (isAside(lease)) {
      if (wanted && nowMs >= lease.retryAtMs && !context.misconfigured) this.#seek(m);
      // Nobody asks for it any more: whether it can be written here is nobody's business.
      if (!wanted && nowMs >= (store.unfit?.againAtMs ?? Infinity)) unfit.beFit(m);
      return;
    }
    if (lease.phase !== "ours") return;
    if (store.traffic !== null) granted.warn(m);
    if (wanted || lease.releaseReason !== null) return;
    if (store.traffic !== null && store.traffic.passing.size > 0) return;
    if (context.rules.drainFirst && (this.#mayStillWrite(nowMs) || granted.awaitLock(m))) return;
    m.stepLease({ type: "release", reason: unfit.releaseReason(store) });
  }

  /** Tries to acquire: where nobody waits for it when there is room, or later. */
  #seek(m: Moment): void {
    if (!m.context.connected) return;
    if (this.waiting > 0 || (m.context.hasRoom?.() ?? true)) {
      m.store.deferred = false;
      return unfit.seekLease(m);
    }
    if (!m.store.deferred) m.out.push({ type: "defer" });
    m.store.deferred = true;
  }

  /** Asks for a tick at the next time that matters, unless an earlier one is on its way. */
  #arm(m: Moment): void {
    const atMs = this.#nextMs(m);
    if (atMs >= this.#armedMs) return;
    this.#armedMs = atMs;
    m.out.push({ type: "wake", atMs });
  }

  #nextMs(m: Moment): number {
    const { store, nowMs, context } = m;
    const wanted = this.#wanted(nowMs, context);
    let atMs = Math.min(store.dueMs, store.blocked?.untilMs ?? Infinity);
    if (store.traffic !== null) atMs = Math.min(atMs, granted.warnAtMs(m));
    const seeks = wanted && context.connected && !context.misconfigured && !store.deferred;
    if (store.lease.phase === "ours" || seeks) {
      atMs = Math.min(atMs, wakeAtMs(store.lease, context));
    }
    if (!wanted && store.traffic !== null && store.traffic.grants.lingerUntilMs > nowMs) {
      atMs = Math.min(atMs, store.traffic.grants.lingerUntilMs);
    }
    if (!wanted && store.unfit !== null && store.unfit.againAtMs > nowMs) {
      atMs = Math.min(atMs, store.unfit.againAtMs);
    }
    if (wanted && !this.pinned && this.watchers === 0) {
      const endsMs = store.lastAskedMs + context.timing.interestMs;
      if (endsMs > nowMs) atMs = Math.min(atMs, endsMs);
    }
    return atMs;
  }
}

/** One event being handled. */
class Now implements Moment {
  readonly store: StoreState;
  readonly nowMs: number;
  readonly context: LeaseContext;
  readonly out: StoreEffect[] = [];

  constructor(store: StoreState, nowMs: number, context: LeaseContext) {
    this.store = store;
    this.nowMs = nowMs;
    this.context = context;
  }

  stepLease(event: LeaseEvent): void {
    notes.stepLease(this, event);
  }
}
