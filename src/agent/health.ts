/**
 * What is wrong, by name: for `status`, `--check` and the log.
 * @module
 */
import type { LeaseNote } from "../lease/state.ts";
import { named } from "./named.ts";
import type { Bearing } from "./slot.ts";
import type { Check, Observer } from "./types.ts";

const NOT_REACHED = "it has not been reached yet; writes are refused until it is";

/** A server that cannot write neither answers a write nor forgets what has expired. */
const FULL_DISK =
  "first see whether the nats-server's disk is full: if so make room, then restart the " +
  "server, which may not write again by itself";

/** How the reason begins where nothing was answered; reads of such a server may well be. */
const SILENCE = "no answer";

/** With only one of the buckets, or with agents that run, some host would go on below what a disk has seen. */
const BEGIN_ANEW = "once no write of the newer epochs is missing, stop all agents, delete both " +
  'buckets (the leases and their -tenures), and start them (the manual: "When the bucket was lost")';

/** What is wrong with some stores, and what to do about it. */
const ADVICE = {
  duplicate_node: (stores: string, rival: string | null) => {
    const who = rival === null ? "another agent" : `another agent (${rival})`;
    return `${who} uses this node's name and holds ${stores}; give each host a name of its own (--node)`;
  },
  epoch: (stores: string) =>
    `the coordinator has gone back in time for ${stores}: it gave an epoch below a recorded one; ` +
    `restore its newest data. Else ${BEGIN_ANEW}`,
  fence: (stores: string) =>
    `the disk has seen a newer epoch than the coordinator gives for ${stores}: this node is stale, the ` +
    "coordinator has lost its past, or the lock file is a copy of another store's; compare the lock " +
    `files of the hosts. Where the coordinator has lost its past, ${BEGIN_ANEW}`,
  lock_file: (stores: string) =>
    `the lock file of ${stores} (or the agent's journal) cannot be used, so the lease was let go; a ` +
    "refused guard says why",
  stuck: (stores: string) =>
    `the coordinator refuses ${stores} although nobody has renewed there for longer than TTL and ` +
    `grace: it keeps an expired entry; ${FULL_DISK}. Where it has room, compare the replicas of the ` +
    "bucket, if it has several, and have the one that kept the entry made anew",
} as const;

/** Those that are over once an entry was taken and recorded. */
const OF_THE_COORDINATOR = ["duplicate_node", "epoch", "stuck"] as const;

/** A single request without an answer is an election, or a lost packet; a second one is a problem. */
const MIN_UNANSWERED = 2;

/** Everything that is wrong now. */
export class Health {
  readonly #observer: Observer;
  /** How many requests in a row had no answer, by store. */
  readonly #unanswered = new Map<string, number>();
  readonly #problems = new Map<string, string>();
  /** Whoever was seen last to use our name. */
  #rival: string | null = null;
  #closed = false;
  /** The stores in which each was seen. */
  readonly #stores = {
    duplicate_node: new Set<string>(),
    epoch: new Set<string>(),
    fence: new Set<string>(),
    lock_file: new Set<string>(),
    stuck: new Set<string>(),
  };

  constructor(observer: Observer) {
    this.#observer = observer;
    // Silently: that a coordinator has yet to be reached is no news when an agent starts.
    this.#problems.set("coordinator", NOT_REACHED);
  }

  /**
   * Notes that something is wrong, or (null) right again. The observer hears when that changes, and
   * when it is wrong for another reason; `news` false: it is the same reason in other words.
   */
  report(name: string, problem: string | null, news = true): void {
    const before = this.#problems.get(name) ?? null;
    if (before === problem) return;
    if (problem === null) this.#problems.delete(name);
    else this.#problems.set(name, problem);
    const untold = before === null || before === NOT_REACHED;
    if (problem === null ? before !== NOT_REACHED : news || untold) {
      this.#observer.problem(name, problem);
    }
  }

  /** Whether this is wrong now. */
  fails(name: string): boolean {
    return this.#problems.has(name);
  }

  /** What a store's change says about the setup as a whole. */
  note(store: string, note: LeaseNote, { recorded, rival }: Bearing): void {
    switch (note.type) {
      case "foreign":
        this.#onAnswered(store);
        if (note.duplicate && note.renews) {
          this.#rival = rival;
          this.#name("duplicate_node", store, true);
        } else if (!note.duplicate) this.#name("duplicate_node", store, false);
        if (note.renews) this.#name("stuck", store, false);
        return;
      case "stale":
        return this.#name("epoch", store, true);
      case "unfit":
        this.#name("fence", store, note.why === "fence");
        return this.#name("lock_file", store, note.why === "lock_file");
      case "stuck":
        return this.#name("stuck", store, true);
      case "unreachable":
        return this.#onUnanswered(store, note.reason);
      case "released":
        return this.#onAnswered(store);
      case "proven":
        // A lease that is renewed while its tenure cannot be recorded is of no use to anybody.
        return recorded ? this.#onAnswered(store) : undefined;
      case "acquired":
        // A new entry was taken: what kept others from getting one is over.
        this.#unanswered.clear();
        this.report("writes", null);
        for (const name of OF_THE_COORDINATOR) this.#name(name, store, false);
    }
  }

  /**
   * Nothing needs the store any more, so nothing is tried for it: what it saw may be over unseen. That
   * an epoch went back is not over for that.
   */
  forget(store: string): void {
    this.#onAnswered(store);
    this.#name("duplicate_node", store, false);
    this.#name("stuck", store, false);
  }

  /** The agent lets go of its coordinator: that nothing is answered any more is no problem. */
  close(): void {
    this.#closed = true;
  }

  /**
   * A coordinator that is connected and looks well may still take no writes, as when a bucket is
   * full; then nothing can be guarded, and that has to show (kubernetes#82960). One store is named:
   * the others fail for the same reason.
   */
  #onUnanswered(store: string, reason: string): void {
    const tries = (this.#unanswered.get(store) ?? 0) + 1;
    this.#unanswered.set(store, tries);
    if (tries < MIN_UNANSWERED || this.#closed || this.fails("writes")) return;
    // Told as that already.
    if (this.fails("coordinator")) return;
    const remedy = reason.startsWith(SILENCE)
      ? `if it lasts, ${FULL_DISK}; its log has more`
      : "put that right, and see the coordinator's own log";
    this.report("writes", `the coordinator does not serve store ${store} (${reason}); ${remedy}`);
  }

  #onAnswered(store: string): void {
    if (!this.#unanswered.delete(store) || this.#unanswered.size > 0) return;
    this.report("writes", null);
  }

  #name(name: keyof typeof ADVICE, store: string, add: boolean): void {
    const set = this.#stores[name];
    if (set.has(store) === add) return;
    if (add) set.add(store);
    else set.delete(store);
    this.report(name, set.size === 0 ? null : ADVICE[name](named([...set]), this.#rival));
  }

  /** The named checks, each with what to do; those in `names` are there even when all is well. */
  checks(names: Readonly<Record<string, string>>): Check[] {
    const checks: Check[] = Object.entries(names).map(([name, well]) => {
      const problem = this.#problems.get(name);
      return { name, ok: problem === undefined, message: problem ?? well };
    });
    for (const [name, message] of this.#problems) {
      if (!(name in names)) checks.push({ name, ok: false, message });
    }
    return checks;
  }
}
