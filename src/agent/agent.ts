/**
 * The agent: every store it was asked about, every request on its way. It carries what happens to
 * the stores and what they ask for to the ports, and decides nothing itself.
 *
 * It is driven by calls and callbacks only, keeps no promise and reads no clock but its port, so
 * that the simulator runs this same class.
 * @module
 */
import * as refuse from "../lease/refusals.ts";
import type { LeaseContext } from "../lease/state.ts";
import type { Store } from "../lease/store.ts";
import { storeName } from "../lease/store_code.ts";
import type { TenureRecord } from "../lease/tenure.ts";
import type { BucketsSeen } from "../ports/coordinator.ts";
import { Admission } from "./admission.ts";
import { Asking } from "./asking.ts";
import { Callers } from "./callers.ts";
import { type Drained, Drains } from "./drain.ts";
import type { CallerEffect } from "./effects.ts";
import { Engine } from "./engine.ts";
import { Health } from "./health.ts";
import { Newcomers } from "./newcomers.ts";
import { Slices } from "./slices.ts";
import { bearingOf, hear, type Slot } from "./slot.ts";
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
import { infoOf, lookUp, pageOf, readHistory } from "./views.ts";
import { Watches } from "./watches.ts";
import { Watching } from "./watching.ts";

/** The agent of one host. */
export class Agent {
  readonly options: AgentOptions;
  readonly health: Health;
  readonly asking: Asking;
  readonly watching: Watching;
  readonly drains: Drains;
  readonly #ports: AgentPorts;
  readonly #engine: Engine;
  readonly #callers: Callers;
  readonly #watches: Watches;
  readonly #newcomers: Newcomers;
  readonly #admission: Admission;

  constructor(options: AgentOptions, ports: AgentPorts) {
    this.options = options;
    this.#ports = ports;
    this.health = new Health(ports.observer);
    this.#callers = new Callers(ports);
    this.#watches = new Watches((slot) => this.#info(slot), ports.timers, {
      lateMs: () => this.#engine.overdueMs,
    });
    this.#engine = new Engine(options, ports, {
      perform: (slot, effect) => this.#perform(slot, effect),
      added: (slot) => this.drains.added(slot),
      forgotten: (slot) => {
        this.health.forget(slot.store.code);
        this.#newcomers.forgotten(slot);
        this.#watches.forgotten(slot);
      },
      handled: (slot) => {
        this.drains.notice(slot);
        this.#watches.notice(slot);
      },
    });
    this.#newcomers = new Newcomers(this.#engine, options.maxStores);
    this.#admission = new Admission(this.#callers, this.#newcomers, options);
    const slices = new Slices(ports, { lateMs: () => this.#engine.overdueMs });
    const { clock } = ports;
    const stores = { engine: this.#engine, newcomers: this.#newcomers, slices, clock };
    this.watching = new Watching(stores, this.#watches, ports.timers);
    this.asking = new Asking({
      ...stores,
      callers: this.#callers,
      mute: () => this.#admission.mute,
    });
    this.drains = new Drains(this.#engine, ports, options.drainMs);
  }

  /** The bucket was inspected: its TTL is the truth. Called again when the TTL is another. */
  setTtl(ttlMs: number): void {
    this.#engine.setTtl(ttlMs);
  }

  /** The connection is up, its buckets inspected; or it is down. */
  setConnected(connected: boolean): void {
    this.#engine.setConnected(connected);
  }

  /** Why the coordinator cannot be used now, and whether it is news; null where it can. */
  setProblem(problem: string | null, news = true): void {
    this.#engine.setDownReason(problem ?? undefined);
    this.health.report("coordinator", problem, news);
  }

  /** Nothing is granted while the bucket contradicts us; null: it is put right. */
  setMisconfigured(reason: string | null, check = "bucket"): void {
    this.#admission.misconfigured = reason;
    this.#engine.setMisconfigured(reason);
    this.#watches.noticeAll(this.#engine.slots.values());
    this.health.report(check, reason);
  }

  /** The buckets may be others than before, by what is known of them; those had this TTL. */
  onBuckets(seen: BucketsSeen, ttlBeforeMs = 0): void {
    this.#engine.bucketsSeen(seen, ttlBeforeMs);
  }

  /** A tenure record written by anybody was heard of, with its revision in the tenures bucket. */
  onTenure(store: string, record: TenureRecord, revision: number): void {
    const slot = this.#engine.slots.get(store);
    if (slot === undefined || record.incarnation === this.options.incarnation) return;
    hear(slot, record, revision);
    this.#engine.dispatch(slot, { type: "lease", event: { type: "tenure", record } });
  }

  /** The stores to hold whether or not anybody asks; those left out are held on while asked for. */
  setPinned(codes: ReadonlySet<string>): void {
    this.#engine.setPinned(codes);
  }

  /** Asks for permission to write. What is named need not be a store code: that is gate 1. */
  guard(client: Client, params: GuardParams, answer: Answer<Granted>): void {
    const refusal = this.#admission.refusal(client, params.store);
    if (refusal !== null) {
      this.#ports.observer.guarded(storeName(params.store), refusal.kind, 0);
      return answer.fail(refusal);
    }
    const slot = this.#newcomers.slot(client, params.store);
    const id = this.#callers.guard(slot, client, params, answer);
    const { waitMs, shared, waitLease, passLock, follow } = params;
    const { pid, socket } = client;
    const guard = { id, waitMs, shared, waitLease, passLock, follow, pid, socket };
    this.#engine.dispatch(slot, { type: "guard", guard });
  }

  /**
   * The locked descriptor of a grant, to be passed now; null where it is not to be passed, because the
   * guard was not asked for so, or is no grant.
   */
  lockOf(token: string): number | null {
    const entry = this.#callers.byToken(token);
    return entry?.params.passLock ? entry.lockFd : null;
  }

  /** The commit-point check for a running write. */
  verify(params: { token: string; store: string }, answer: Answer<Verified>): void {
    const entry = this.#callers.byToken(params.token);
    if (entry === undefined || entry.slot.store.code !== params.store) {
      return answer.fail(refuse.noToken(params.store));
    }
    const id = this.#callers.verify(answer);
    this.#engine.dispatch(entry.slot, { type: "verify", id, grantId: entry.id });
  }

  /** Ends a grant. One whose lease went while its write ran is told so, and is over all the same. */
  release(token: string, answer: Answer<Record<never, never>>): void {
    const entry = this.#callers.byToken(token);
    if (entry === undefined) return answer.fail(refuse.noToken());
    const { store } = entry.slot;
    const why = store.lossOf(entry.id, this.#ports.clock.bootMs(), this.#engine.context);
    this.#engine.dispatch(entry.slot, { type: "end", id: entry.id, gone: false });
    if (why === null) answer.ok({});
    else answer.fail(refuse.lost(store.code, why));
  }

  /** A connection closed: what it waited for or held is over. */
  clientGone(client: Client): void {
    this.#watches.clientGone(client);
    for (const { id, slot } of this.#callers.ofClient(client)) {
      this.#engine.dispatch(slot, { type: "end", id, gone: true });
      // A guard that was not granted ends without a word.
      if (this.#callers.has(id)) this.#callers.forget(id);
    }
  }

  /** Who holds the store, as the coordinator tells; ourselves from memory. */
  holder(store: string, answer: Answer<LeaseInfo>): void {
    const slot = this.#engine.slots.get(store);
    const info = slot === undefined ? null : this.#info(slot);
    if (info?.state === "self") return answer.ok(info);
    const { connected, downReason = "not connected" } = this.#engine.context;
    if (!connected) return answer.fail(refuse.cannotTell(store, downReason));
    const { coordinator, memory } = this.#ports;
    // A store that is known here finds a stranger out by itself.
    const onStranger = () => this.#engine.slots.has(store) || memory.rememberStranger(store);
    lookUp(store, { self: this.options, coordinator, onStranger }, answer);
  }

  /** What this agent holds or follows, by store code, those after `after` that start with `prefix`. */
  leases(
    page: { prefix?: string; after?: string; limit: number },
  ): { leases: LeaseInfo[]; next: string | null } {
    const { codes, next } = pageOf(this.#engine.slots.keys(), page);
    return { leases: codes.map((code) => this.#info(this.#engine.slots.get(code)!)), next };
  }

  /** The kept tenures of a store, newest first. */
  history(store: string, answer: Answer<TenureRecord[]>): void {
    readHistory(store, this.#ports.coordinator, answer);
  }

  /**
   * Stops granting, lets grants finish for at most `drainMs`, releases, and calls `done`. A lease
   * whose grant did not finish is not released: it ages out, and whoever writes under it ends.
   */
  drain(done: Drained): void {
    if (this.#admission.draining) return;
    this.#admission.draining = true;
    this.drains.begin(null, { reason: "shutdown", forMs: Infinity }, done);
  }

  /**
   * The same for one store, or all (null), held by now or not; they are not acquired for `forMs`. Here we
   * stay: a lease whose grant did not finish is renewed on, so that nobody writes beside it, and released
   * when the grant ends within `forMs`.
   */
  stepdown(store: string | null, forMs: number | null, done: Drained): void {
    forMs ??= this.#engine.context.timing.ttlMs;
    this.drains.begin(store, { reason: "stepdown", forMs }, done);
  }

  /** Lets go of everything at once: timers and locks. Leases age out. */
  close(): void {
    this.#engine.close();
  }

  get state(): "starting" | "serving" | "draining" {
    return this.#admission.draining ? "draining" : this.#engine.ttlKnown ? "serving" : "starting";
  }

  /** TTL and grace; null until the bucket was seen. */
  get timing(): { ttlMs: number; graceMs: number } | null {
    return this.#engine.ttlKnown ? this.#engine.context.timing : null;
  }

  /** How late the most overdue store is, in milliseconds: 0 while timers are in time. */
  get overdueMs(): number {
    return this.#engine.overdueMs;
  }

  /** How many of what there are now. */
  counts(): Counts {
    return { ...this.#engine.counts(this.#admission.mute), ...this.#callers.counts };
  }

  /** How long ago the renewal was due that has waited longest for its acknowledgement; in ms. */
  get renewalOverdueMs(): number {
    return this.#engine.renewalOverdueMs;
  }

  /** A store that is known here, with what it looks at; for the simulator's checkers. */
  inspect(code: string): { readonly store: Store; readonly context: LeaseContext } | null {
    const { slots, context } = this.#engine;
    const store = slots.get(code)?.store;
    return store === undefined ? null : { store, context };
  }

  #info(slot: Slot): LeaseInfo {
    const info = infoOf(slot, this.options, this.#ports.clock, this.#engine.context);
    return this.#admission.mute && info.held ? { ...info, held: false } : info;
  }

  #perform(slot: Slot, effect: CallerEffect): void {
    switch (effect.type) {
      case "note":
        this.health.note(slot.store.code, effect.note, bearingOf(slot));
        this.#ports.observer.note(slot.store.code, effect.note);
        if (effect.note.type === "released") this.drains.released(slot, effect.note.deleted);
        return;
      case "granted":
        return this.#onGranted(slot, effect);
      case "answer":
        return this.#callers.answer(effect.id, effect.held);
      default:
        return this.#callers.perform(slot, effect);
    }
  }

  /** The last word on a grant: the setup may have been contradicted while the guard was on its way. */
  #onGranted(slot: Slot, effect: Extract<CallerEffect, { type: "granted" }>): void {
    const events = this.#callers.grant(slot, effect, this.#admission.misconfigured);
    for (const event of events) this.#engine.dispatch(slot, event);
  }
}
