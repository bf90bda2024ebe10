/**
 * The agent: every store it was asked about, every request on its way. It carries what happens to
 * the stores and what they ask for to the ports, and decides nothing itself.
 *
 * It is driven by calls and callbacks only, keeps no promise and reads no clock but its port, so
 * that the simulator runs this same class.
 * @module
 */
import type { Refusal } from "../lease/errors.ts";
import * as refuse from "../lease/refusals.ts";
import { ALL_RULES } from "../lease/rules.ts";
import type { Inheritance, LeaseContext } from "../lease/state.ts";
import { Store } from "../lease/store.ts";
import type { StoreEffect, StoreEvent } from "../lease/store_events.ts";
import type { TenureRecord } from "../lease/tenure.ts";
import { timingOf } from "../lease/timing.ts";
import { Drains } from "./drain.ts";
import { World } from "./effects.ts";
import { Health } from "./health.ts";
import { Requests, tellLost } from "./requests.ts";
import type { Slot } from "./slot.ts";
import type {
  AgentOptions,
  AgentPorts,
  Answer,
  Client,
  Counts,
  Granted,
  GuardParams,
  LeaseInfo,
  Verified,
} from "./types.ts";
import { infoOf, lookUp } from "./views.ts";
import { Wakes } from "./wakes.ts";
import { Watches } from "./watches.ts";

/**
 * How many due stores are ticked before the event loop gets its turn: with very many stores due at
 * once, a guard waits for a slice of them, not for all.
 */
const TICK_SLICE = 256;

/** The agent of one host. */
export class Agent {
  readonly options: AgentOptions;
  readonly health: Health;
  readonly #ports: AgentPorts;
  readonly #world: World;
  readonly #slots = new Map<string, Slot>();
  readonly #requests = new Requests();
  readonly #drains: Drains;
  readonly #watches: Watches;
  readonly #wakes = new Wakes<Slot>();
  readonly #pending: { slot: Slot; event: StoreEvent }[] = [];
  #pinned = new Set<string>();
  #handling = false;
  #context: LeaseContext | null = null;
  /** The store whose event is being handled. */
  #current = "";
  #state: "starting" | "serving" | "draining" = "starting";
  /** Why nothing may be granted although the coordinator is there; null when nothing is wrong. */
  #misconfigured: string | null = null;
  #cancelTimer: (() => void) | null = null;
  #timerMs = Infinity;

  constructor(options: AgentOptions, ports: AgentPorts) {
    this.options = options;
    this.#ports = ports;
    this.#world = new World(options, ports, (slot, event) => this.#dispatch(slot, event));
    this.#drains = new Drains(ports, (slot, event) => this.#dispatch(slot, event));
    this.#watches = new Watches((slot) => this.#info(slot));
    this.health = new Health(ports.observer);
  }

  // ---- what the coordinator's adapter tells ------------------------------------------------

  /** The bucket was inspected: its TTL is the truth. Called again when the TTL is another. */
  setTtl(ttlMs: number): void {
    const { graceMs, interestMs, node, incarnation, rules = ALL_RULES } = this.options;
    this.#context = {
      timing: timingOf({ ttlMs, graceMs, interestMs }),
      node,
      incarnation,
      rules,
      connected: this.#context?.connected ?? false,
      inherits: (id) => this.#inherits(id),
    };
    if (this.#state === "starting") this.#state = "serving";
    for (const code of this.#pinned) this.#slot(code)!.store.pinned = true;
  }

  /** The connection is up, its buckets inspected; or it is down. */
  setConnected(connected: boolean): void {
    if (this.#context === null || this.#context.connected === connected) return;
    this.#context = { ...this.#context, connected };
    const event: StoreEvent = { type: connected ? "connected" : "disconnected" };
    for (const slot of [...this.#slots.values()]) this.#dispatch(slot, event);
    if (connected) { for (const code of this.#pinned) this.#wakePinned(code); }
  }

  /** Nothing is granted while the bucket contradicts us; null: it is put right. */
  setMisconfigured(reason: string | null): void {
    this.#misconfigured = reason;
    this.health.report("bucket", reason);
  }

  /** A tenure record written by anybody was heard of. */
  onTenure(store: string, record: TenureRecord): void {
    const slot = this.#slots.get(store);
    if (slot === undefined || record.incarnation === this.options.incarnation) return;
    this.#dispatch(slot, { type: "lease", event: { type: "tenure", record } });
  }

  /** The stores to hold whether or not anybody asks; those left out are held on while asked for. */
  setPinned(codes: ReadonlySet<string>): void {
    for (const code of this.#pinned) {
      const slot = codes.has(code) ? undefined : this.#slots.get(code);
      if (slot !== undefined) slot.store.pinned = false;
    }
    this.#pinned = new Set(codes);
    if (this.#context === null) return;
    for (const code of codes) this.#wakePinned(code);
  }

  #wakePinned(code: string): void {
    const slot = this.#slot(code)!;
    slot.store.pinned = true;
    this.#dispatch(slot, { type: "tick" });
  }

  // ---- requests ----------------------------------------------------------------------------

  /** Asks for permission to write. Gate 1, the store code, has been passed by whoever calls. */
  guard(client: Client, params: GuardParams, answer: Answer<Granted>): void {
    const refusal = this.#beforeTheGates(client, params);
    const slot = refusal === null ? this.#slot(params.store) : null;
    if (refusal !== null || slot === null) {
      const why = refusal ?? refuse.unavailable(params.store, this.health.unreachable);
      this.#ports.observer.guarded(params.store, why.kind, 0);
      return answer.fail(why);
    }
    const id = this.#requests.nextId();
    const startedMs = this.#ports.clock.bootMs();
    this.#requests.add({ id, slot, client, params, answer, startedMs, token: null });
    const { waitMs, shared, waitLease, passLock, follow } = params;
    const guard = { id, waitMs, shared, waitLease, passLock, follow, pid: client.pid };
    this.#dispatch(slot, { type: "guard", guard });
  }

  #beforeTheGates(client: Client, { store }: GuardParams): Refusal | null {
    if (this.#state === "draining") return refuse.draining(store);
    if (this.#misconfigured !== null) return misconfigured(store, this.#misconfigured);
    const { maxWaiters, maxGrants } = this.options;
    if (this.#requests.waiters >= maxWaiters) {
      return limit(store, `${maxWaiters} guards are waiting already (--max-waiters)`);
    }
    if (this.#requests.of(client) >= maxGrants) {
      return limit(store, `this connection has ${maxGrants} guards and grants (--max-grants)`);
    }
    return null;
  }

  /** The commit-point check for a running write. */
  verify(params: { token: string; store: string }, answer: Answer<Verified>): void {
    const entry = this.#requests.byToken(params.token);
    if (entry === undefined || entry.slot.store.code !== params.store) {
      return answer.fail(refuse.noToken(params.store));
    }
    const id = this.#requests.nextId();
    this.#requests.verifies.set(id, { answer });
    this.#dispatch(entry.slot, { type: "verify", id, grantId: entry.id });
  }

  /** Ends a grant. One whose lease went while its write ran is told so, and is over all the same. */
  release(token: string, answer: Answer<Record<never, never>>): void {
    const entry = this.#requests.byToken(token);
    if (entry === undefined) return answer.fail(refuse.noToken());
    const { store } = entry.slot;
    const why = store.lossOf(entry.id, this.#ports.clock.bootMs(), this.#context!);
    this.#dispatch(entry.slot, { type: "end", id: entry.id, gone: false });
    if (why === null) answer.ok({});
    else answer.fail(refuse.lost(store.code, why));
  }

  /** A connection closed: what it waited for or held is over. */
  clientGone(client: Client): void {
    this.#watches.clientGone(client);
    for (const { id, slot } of this.#requests.ofClient(client)) {
      this.#dispatch(slot, { type: "end", id, gone: true });
      this.#forgetGuard(id);
    }
  }

  /** Whether the store is held: from memory, but for the first question about it. */
  held(store: string, done: (held: boolean) => void): void {
    const slot = this.#state === "draining" || this.#misconfigured !== null
      ? null
      : this.#slot(store);
    if (slot === null) return done(false);
    if (slot.store.resolved) return done(this.#heldNow(slot));
    const id = this.#requests.nextId();
    this.#requests.questions.set(id, done);
    this.#dispatch(slot, { type: "ask", id });
  }

  #heldNow(slot: Slot): boolean {
    const nowMs = this.#ports.clock.bootMs();
    slot.store.touch(nowMs);
    return slot.store.held(nowMs, this.#context!) && this.#state !== "draining";
  }

  /** Who holds the store, as the coordinator tells; ourselves from memory. */
  holder(store: string, answer: Answer<LeaseInfo>): void {
    const slot = this.#slots.get(store);
    const info = slot === undefined ? null : this.#info(slot);
    if (info?.state === "self") return answer.ok(info);
    if (this.#context === null || !this.#context.connected) {
      return answer.fail(refuse.unavailable(store, this.health.unreachable));
    }
    lookUp(store, this.options, this.#ports.coordinator, answer);
  }

  /** What this agent holds or follows, by store code, those after `after` that start with `prefix`. */
  leases(
    page: { prefix?: string; after?: string; limit: number },
  ): { leases: LeaseInfo[]; next: string | null } {
    const { prefix = "", after = "", limit } = page;
    const codes: string[] = [];
    for (const code of this.#slots.keys()) {
      if (code > after && code.startsWith(prefix)) codes.push(code);
    }
    codes.sort();
    const shown = codes.slice(0, limit);
    return {
      leases: shown.map((code) => this.#info(this.#slots.get(code)!)),
      next: codes.length > limit ? shown[shown.length - 1] : null,
    };
  }

  /** The kept tenures of a store, newest first. */
  history(store: string, answer: Answer<TenureRecord[]>): void {
    this.#ports.coordinator.readHistory(store, (outcome) => {
      if (outcome.kind === "ok") answer.ok(outcome.value);
      else {
        const reason = outcome.kind === "unknown" ? outcome.reason : "conflicting answers";
        answer.fail(refuse.unavailable(store, reason));
      }
    });
  }

  /** Tells `client` the state of the stores (all known, for null) and then each change. */
  watch(client: Client, stores: readonly string[] | null): string {
    const subscription = this.#watches.add(client, stores);
    for (const code of stores ?? this.#slots.keys()) {
      const slot = this.#slot(code);
      if (slot === null) continue;
      slot.store.touch(this.#ports.clock.bootMs());
      if (!slot.store.resolved) this.#dispatch(slot, { type: "tick" });
      this.#watches.tell(subscription, slot);
    }
    return subscription;
  }

  /** Ends a watch; false if the client has no such one. */
  unwatch(client: Client, subscription: string): boolean {
    return this.#watches.remove(client, subscription);
  }

  // ---- giving leases up --------------------------------------------------------------------

  /**
   * Stops granting, lets grants finish for at most `drainMs`, releases, and calls `done`. Leases
   * whose grants did not finish are not released: they age out, and so does whoever writes under
   * them.
   */
  drain(done: (result: { released: number; remaining: number }) => void): void {
    if (this.#state === "draining") return;
    this.#state = "draining";
    const slots = [...this.#slots.values()];
    this.#drains.begin(slots, { reason: "shutdown", untilMs: Infinity }, {
      forMs: this.options.drainMs,
      done,
    });
  }

  /** The same for one store, or all (null), which are not acquired again for `forMs`. */
  stepdown(
    store: string | null,
    forMs: number | null,
    done: (result: { released: number; remaining: number }) => void,
  ): void {
    const slots = store === null
      ? [...this.#slots.values()]
      : [this.#slot(store)].filter((slot) => slot !== null);
    const holdOffMs = forMs ?? this.#context?.timing.ttlMs ?? 0;
    const untilMs = this.#ports.clock.bootMs() + holdOffMs;
    this.#drains.begin(slots, { reason: "stepdown", untilMs }, {
      forMs: this.options.drainMs,
      done,
    });
  }

  /** Lets go of everything at once: timers and locks. Leases age out. */
  close(): void {
    this.#cancelTimer?.();
    for (const slot of this.#slots.values()) this.#world.close(slot);
  }

  // ---- for status --------------------------------------------------------------------------

  get state(): "starting" | "serving" | "draining" {
    return this.#state;
  }

  /** TTL and grace; null until the bucket was seen. */
  get timing(): { ttlMs: number; graceMs: number } | null {
    return this.#context?.timing ?? null;
  }

  /** How late the most overdue store is, in milliseconds: 0 while timers are in time. */
  get overdueMs(): number {
    return Math.max(0, this.#ports.clock.bootMs() - this.#wakes.nextMs);
  }

  /** How many of what there are now. */
  counts(): Counts {
    let held = 0;
    let waiting = 0;
    let foreign = 0;
    for (const slot of this.#slots.values()) {
      const { state, held: isHeld } = this.#info(slot);
      if (state === "other") foreign++;
      else if (isHeld) held++;
      else if (state === "self") waiting++;
    }
    const { grants, waiters } = this.#requests;
    return { held, waiting, foreign, grants, waiters };
  }

  /** A store that is known here, with what it looks at; for the simulator's checkers. */
  inspect(code: string): { readonly store: Store; readonly context: LeaseContext } | null {
    const slot = this.#slots.get(code);
    return slot === undefined ? null : { store: slot.store, context: this.#context! };
  }

  // ---- inside ------------------------------------------------------------------------------

  #info(slot: Slot): LeaseInfo {
    const info = infoOf(slot.store, this.options, this.#ports.clock, this.#context!);
    const mute = this.#state === "draining" || this.#misconfigured !== null;
    return mute && info.held ? { ...info, held: false } : info;
  }

  /** What the host's memory knows of an incarnation, for the store whose event is handled. */
  #inherits(incarnation: string): Inheritance | null {
    const { memory } = this.#ports;
    if (!memory.previousIncarnations.has(incarnation)) return null;
    return { clientsGone: memory.clientsGone(this.#current) };
  }

  /** The store, made known if it is not; null while nothing is known about the bucket. */
  #slot(code: string): Slot | null {
    const known = this.#slots.get(code);
    if (known !== undefined) return known;
    if (this.#context === null) return null;
    const { memory, clock } = this.#ports;
    const slot: Slot = {
      store: new Store(code, {
        nowMs: clock.bootMs(),
        pinned: this.#pinned.has(code),
        stranger: memory.strangers.has(code),
        graceUntilMs: memory.graces.get(code) ?? 0,
      }),
      locks: new Map(),
    };
    this.#slots.set(code, slot);
    return slot;
  }

  /** Handles an event, and whatever effects of it bring, one after the other. */
  #dispatch(slot: Slot, event: StoreEvent): void {
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
    this.#schedule();
  }

  #handle(slot: Slot, event: StoreEvent): void {
    const { store } = slot;
    this.#current = store.code;
    // Read before any effect goes out: what is sent below is sent no earlier than this.
    const nowMs = this.#ports.clock.bootMs();
    for (const effect of store.handle(event, nowMs, this.#context!)) this.#perform(slot, effect);
    this.#drains.notice(slot);
    this.#watches.notice(slot);
    if (event.type === "tick" && store.forgettable(nowMs, this.#context!)) this.#forget(slot);
  }

  #forget(slot: Slot): void {
    if (!this.#watches.wants(slot) && !this.#pinned.has(slot.store.code)) {
      this.#slots.delete(slot.store.code);
    }
  }

  #perform(slot: Slot, effect: StoreEffect): void {
    switch (effect.type) {
      case "wake":
        return this.#wakes.add(effect.atMs, slot);
      case "note":
        this.health.note(slot.store.code, effect.note);
        return this.#ports.observer.note(slot.store.code, effect.note);
      case "granted":
        return this.#onGranted(slot, effect);
      case "refused":
        return this.#onRefused(effect.id, effect.refusal);
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
        return this.#onDeadline(effect.type, effect.id, effect.deadlineMs);
      case "grant_lost":
        return this.#onGrantLost(effect.id, effect.refusal);
      case "grant_ended":
        return void this.#forgetGuard(effect.id);
      case "answer":
        return this.#takeQuestion(effect.id)?.(effect.held && this.#misconfigured === null);
      default:
        return this.#world.perform(slot, effect);
    }
  }

  #onGranted(slot: Slot, effect: Extract<StoreEffect, { type: "granted" }>): void {
    const entry = this.#requests.guards.get(effect.id);
    const lock = slot.locks.get(effect.lockId);
    if (entry === undefined || lock === undefined || !("fd" in lock)) return;
    const nowMs = this.#ports.clock.bootMs();
    const remainingMs = effect.deadlineMs - nowMs;
    // The bucket may have been found changed while this guard was on its way.
    if (this.#misconfigured !== null || remainingMs <= 0) {
      const refusal = this.#misconfigured === null
        ? refuse.unavailable(slot.store.code, "the lease ran out")
        : misconfigured(slot.store.code, this.#misconfigured);
      this.#onRefused(effect.id, refusal);
      return this.#dispatch(slot, { type: "end", id: effect.id, gone: false });
    }
    const token = this.#ports.newToken();
    this.#requests.grant(entry, token);
    this.#ports.observer.guarded(slot.store.code, "granted", nowMs - entry.startedMs);
    const { epoch, revision, deadlineMs } = effect;
    entry.answer.ok({
      token,
      store: slot.store.code,
      epoch,
      revision,
      deadlineMs,
      remainingMs,
      lockPath: lock.path,
      fd: lock.fd,
    });
  }

  #onRefused(id: number, refusal: Refusal): void {
    const entry = this.#forgetGuard(id);
    if (entry === undefined) return;
    const tookMs = this.#ports.clock.bootMs() - entry.startedMs;
    this.#ports.observer.guarded(entry.params.store, refusal.kind, tookMs);
    entry.answer.fail(refusal);
  }

  #forgetGuard(id: number) {
    this.#ports.memory.endGrant(id);
    return this.#requests.remove(id);
  }

  #onDeadline(change: "expiring" | "renewed", id: number, deadlineMs: number): void {
    const entry = this.#requests.guards.get(id);
    if (entry === undefined || entry.token === null) return;
    const { token, client, slot } = entry;
    client.deadline(change, { token, store: slot.store.code, deadlineMs });
  }

  #onGrantLost(id: number, refusal: Refusal): void {
    const entry = this.#requests.guards.get(id);
    if (entry === undefined) return;
    this.#ports.observer.grantLost(entry.slot.store.code, refusal.kind, entry.client.pid);
    tellLost(entry, refusal);
  }

  #takeVerify(id: number): Answer<Verified> | undefined {
    const entry = this.#requests.verifies.get(id);
    this.#requests.verifies.delete(id);
    return entry?.answer;
  }

  #takeQuestion(id: number): ((held: boolean) => void) | undefined {
    const done = this.#requests.questions.get(id);
    this.#requests.questions.delete(id);
    return done;
  }

  /** Sets the timer for the earliest wake, if it is not set for that or earlier. */
  #schedule(): void {
    const atMs = this.#wakes.nextMs;
    if (atMs >= this.#timerMs) return;
    this.#cancelTimer?.();
    this.#timerMs = atMs;
    const delayMs = Math.max(0, atMs - this.#ports.clock.bootMs());
    this.#cancelTimer = this.#ports.timers.after(delayMs, () => this.#onTimer());
  }

  #onTimer(): void {
    this.#timerMs = Infinity;
    this.#cancelTimer = null;
    const nowMs = this.#ports.clock.bootMs();
    for (let i = 0; i < TICK_SLICE; i++) {
      const slot = this.#wakes.takeDue(nowMs);
      if (slot === undefined) break;
      this.#dispatch(slot, { type: "tick" });
    }
    this.#schedule();
  }
}

function misconfigured(store: string, reason: string): Refusal {
  return { kind: "misconfigured", message: `Cannot guard store ${store}: ${reason}` };
}

function limit(store: string, reason: string): Refusal {
  return {
    kind: "limit",
    message: `Cannot guard store ${store}: ${reason}; try again when some have ended`,
    retryAfterMs: 1_000,
  };
}
