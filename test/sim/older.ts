/**
 * The older program: one that knows only the lease bucket. It creates, updates at the revision it
 * knows every third of a TTL, and writes for as long as it believes that it holds: until a conflict,
 * or a TTL after it sent its newest acknowledged renewal. It keeps no grace and takes no margin.
 * @module
 */
import type { EntryRead, Outcome } from "../../src/ports/coordinator.ts";
import type { Author } from "./bucket.ts";
import { SimClock } from "./clocks.ts";
import { Link } from "./link.ts";
import type { Request } from "./server.ts";
import type { World } from "./world.ts";

interface Hold {
  revision: number;
  /** Until when it writes, by the perfect clock. */
  untilMs: number;
  readonly sinceMs: number;
}

type Unsigned =
  | { readonly type: "put"; readonly store: string; readonly expect: number }
  | { readonly type: "delete"; readonly store: string; readonly expect: number }
  | { readonly type: "read"; readonly store: string };

/** One older program. */
export class Older {
  readonly #world: World;
  readonly #link: Link;
  readonly #author: Author;
  readonly #holds = new Map<string, Hold>();
  readonly #clock: SimClock;
  #stopped = false;

  constructor(world: World) {
    this.#world = world;
    this.#link = new Link(world);
    this.#clock = new SimClock(world.scheduler, 1 + world.random.between(-0.01, 0.01), 0);
    this.#author = { node: "older", incarnation: null, process: world.nextProcess() };
    this.#link.dial();
    for (const store of world.plan.stores) this.#round(store);
  }

  get link(): Link {
    return this.#link;
  }

  /** Until when it writes to the store, as far as it knows now; null when it does not. */
  writing(store: string): { readonly sinceMs: number; readonly untilMs: number } | null {
    const hold = this.#holds.get(store);
    return hold === undefined || hold.untilMs <= this.#world.scheduler.nowMs ? null : hold;
  }

  /** It ends without releasing anything. */
  stop(): void {
    this.#stopped = true;
    this.#holds.clear();
    this.#link.close();
  }

  #round(store: string): void {
    const { scheduler, random, plan } = this.#world;
    const held = this.#holds.has(store);
    // It renews in time; as one of many, it does not try for every store all the time.
    const pauseMs = held ? this.#clock.perfectSpan(plan.ttlMs / 3) : random.about(plan.ttlMs * 0.7);
    scheduler.after(pauseMs, () => {
      if (this.#stopped) return;
      this.#act(store);
      this.#round(store);
    });
  }

  #act(store: string): void {
    const { random, scheduler, trace } = this.#world;
    const hold = this.#holds.get(store);
    if (hold === undefined) return this.#create(store, 0);
    if (hold.untilMs <= scheduler.nowMs) return void this.#holds.delete(store);
    if (random.chance(0.1)) {
      this.#holds.delete(store);
      trace.add("older", `stops writing ${store} and deletes its entry`);
      return this.#send({ type: "delete", store, expect: hold.revision }, () => {});
    }
    this.#write(store, hold.revision, hold);
  }

  #create(store: string, expect: number): void {
    this.#write(store, expect, null, () => {
      if (expect !== 0) return;
      this.#send({ type: "read", store }, (outcome) => {
        if (outcome.kind !== "ok") return;
        const read = outcome.value as EntryRead;
        if (read.kind === "tombstone" && !this.#holds.has(store)) {
          this.#create(store, read.revision);
        }
      });
    });
  }

  #write(store: string, expect: number, hold: Hold | null, onConflict = () => {}): void {
    const { scheduler, plan, checks, trace } = this.#world;
    const sentMs = scheduler.nowMs;
    this.#send({ type: "put", store, expect }, (outcome) => {
      if (this.#holds.get(store) !== (hold ?? undefined)) return;
      if (outcome.kind === "conflict") {
        if (hold !== null) trace.add("older", `stops writing ${store}: conflict`);
        this.#holds.delete(store);
        return onConflict();
      }
      if (outcome.kind !== "ok") return;
      const untilMs = sentMs + this.#clock.perfectSpan(plan.ttlMs);
      if (untilMs <= scheduler.nowMs) return;
      if (hold === null) trace.add("older", `writes ${store} from now on`);
      const next = hold ?? { revision: 0, untilMs: 0, sinceMs: scheduler.nowMs };
      next.revision = outcome.value as number;
      next.untilMs = untilMs;
      this.#holds.set(store, next);
      checks.olderWrites(store);
    });
  }

  #send(unsigned: Unsigned, done: (outcome: Outcome<unknown>) => void): void {
    if (!this.#link.connected) return;
    const author = this.#author;
    const request: Request = unsigned.type === "put"
      ? { ...unsigned, author, entry: { node: "older", incarnation: null, address: null } }
      : { ...unsigned, author };
    const sentMs = this.#world.scheduler.nowMs;
    this.#link.send(request, (outcome) => {
      // What takes longer than a request's timeout is not waited for.
      if (!this.#stopped && this.#world.scheduler.nowMs - sentMs < 1_500) done(outcome);
    });
  }
}
