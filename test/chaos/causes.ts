/**
 * What each fault can be the cause of, where, and for how long after it was healed.
 * @module
 */
import type { Event, EventOf } from "./history.ts";

/** Something that a client was told, as far as it needs a cause. */
export type Effect =
  /** The coordinator did not answer the agent. */
  | "unavailable"
  /** The agent did not answer the client. */
  | "gone"
  /** The agent was told to give its leases up. */
  | "draining"
  /** A lease ended that was not given up. */
  | "lost";

/** A fault with its end; one that is never healed lasts for the moment it was injected in. */
export type FaultSpan = EventOf<"fault"> & { readonly healedMs: number };

/** Faults that end the agent's process, and those that have it give up leases. */
const ENDS_AGENT = ["kill agent", "kill and restart agent", "kill host"];
const STOPS_AGENT = ["stop agent", "upgrade agent"];
/** Faults that touch the entry of one store, which their detail names first, and nothing else. */
const OF_ENTRY = ["delete entry", "overwrite entry", "replace entry"];
/** Faults that agents do not notice. */
const UNNOTICED = ["step agent's clock", "kill writers", "kill older program"];

/** What the faults cause; what is not named here may cut agents from the coordinator. */
function effectsOf(name: string): readonly Effect[] {
  if (ENDS_AGENT.includes(name)) return ["unavailable", "gone", "lost"];
  if (STOPS_AGENT.includes(name)) return ["unavailable", "gone", "draining", "lost"];
  // What does not finish in the time for draining is lost.
  if (name === "step down") return ["draining", "lost"];
  if (OF_ENTRY.includes(name)) return ["lost"];
  return UNNOTICED.includes(name) ? [] : ["unavailable", "lost"];
}

/**
 * For how long, in milliseconds. The coordinator: a dead connection is found after 6 s, an election
 * takes 4 to 9 s, a dial up to 1.5 s. An agent's process: it serves within a second, on a machine that
 * is busy. Draining: for 5 s at most, and then nothing is acquired for 2 s (`step down`).
 */
const AFTERMATH_MS: Record<Effect, number> = {
  unavailable: 18_000,
  gone: 5_000,
  draining: 9_000,
  lost: 18_000,
};

/**
 * Tenure records are noted so much later than they are written: a request of their follower may have to
 * time out first, after 1 s, on a busy machine.
 */
export const FOLLOWER_LATE_MS = 3_000;

/** When a run starts, the stream of records is made, and elects. */
const START_MS = 6_000;

/** The faults of a run. */
export class Causes {
  /** Whether the clients came to their end, and what had been written was noted. */
  readonly complete: boolean;
  readonly #nodes: readonly string[];
  readonly #syncAlways: boolean;
  readonly #faults: readonly FaultSpan[];

  constructor(events: readonly Event[], { t, nodes, sync }: EventOf<"setup">) {
    this.#nodes = nodes;
    this.#syncAlways = sync === "always";
    this.complete = events.some(({ kind }) => kind === "end");
    const healed = new Map<number, number>();
    for (const event of events) if (event.kind === "healed") healed.set(event.fault, event.t);
    const faults = events.filter((event) => event.kind === "fault");
    // The start of the run is one: servers elect, agents connect, some before others.
    const start = { kind: "fault", t, fault: 0, name: "start", targets: nodes } as const;
    this.#faults = [start, ...faults]
      .map((fault) => ({ ...fault, healedMs: Math.max(fault.t, healed.get(fault.fault) ?? 0) }));
  }

  /** Whether something explains an effect on a node, about a store, in a time span. */
  explain(
    effect: Effect,
    where: { readonly node: string; readonly store: string },
    fromMs: number,
    toMs: number,
  ): boolean {
    return this.around(where, fromMs, toMs, AFTERMATH_MS[effect])
      .some(({ name }) => effectsOf(name).includes(effect));
  }

  /** Whether a lease on a store may have been lost on any node, so that somebody was displaced. */
  displaced(store: string, fromMs: number, toMs: number): boolean {
    return this.#nodes.some((node) => this.explain("lost", { node, store }, fromMs, toMs));
  }

  /** Faults that touch a node and a store, and were there, or healed just before, in a time span. */
  around(
    { node, store }: { readonly node: string; readonly store: string },
    fromMs: number,
    toMs: number,
    aftermathMs = AFTERMATH_MS.unavailable,
  ): FaultSpan[] {
    return this.#faults.filter((fault) =>
      fault.t <= toMs && fault.healedMs + aftermathMs >= fromMs &&
      this.#touches(fault, node) && touchesStore(fault, store)
    );
  }

  /** The moments in which something was done to a node. */
  momentsOf(node: string): number[] {
    return this.#faults.filter((fault) => fault.fault > 0 && fault.targets.includes(node))
      .map(({ t }) => t);
  }

  /** For how long of a time span a node's agent was frozen. */
  frozenMs(node: string, fromMs: number, toMs: number): number {
    return this.#faults.filter(({ name, targets }) =>
      name === "freeze agent" && targets.includes(node)
    ).reduce(
      (sumMs, { t, healedMs }) =>
        sumMs + Math.max(0, Math.min(toMs, healedMs) - Math.max(fromMs, t)),
      0,
    );
  }

  /** When in a time span the last outage began that a node's agent could notice; else its start. */
  beganMs(
    where: { readonly node: string; readonly store: string },
    fromMs: number,
    toMs: number,
  ): number {
    const began = this.around(where, fromMs, toMs)
      .filter(({ name }) => effectsOf(name).includes("unavailable")).map(({ t }) => t);
    return Math.max(fromMs, ...began);
  }

  /** Whether servers may have lost what they had acknowledged, by a power failure in a time span. */
  mayForget(fromMs: number, toMs: number): boolean {
    return !this.#syncAlways &&
      this.#faults.some(({ name, t, healedMs }) =>
        name.startsWith("power failure") && t <= toMs &&
        healedMs + AFTERMATH_MS.unavailable >= fromMs
      );
  }

  /** By when what was written at this time is noted by whoever reads it from the servers. */
  notedByMs(t: number): number {
    let untilMs = t + FOLLOWER_LATE_MS;
    const outages = this.#faults.filter(({ fault, name, targets }) =>
      effectsOf(name).includes("unavailable") &&
      (fault === 0 || !targets.some((target) => this.#nodes.includes(target)))
    ).sort((a, b) => a.t - b.t);
    // One outage may begin before another one is over.
    for (const { fault, t: beganMs, healedMs } of outages) {
      const overMs = healedMs + (fault === 0 ? START_MS : AFTERMATH_MS.unavailable);
      if (beganMs <= untilMs && overMs >= t) untilMs = Math.max(untilMs, overMs);
    }
    return untilMs;
  }

  /** A fault among servers, or of what they keep, touches every node; any other the nodes it names. */
  #touches({ targets }: FaultSpan, node: string): boolean {
    return targets.includes(node) || !targets.some((target) => this.#nodes.includes(target));
  }
}

function touchesStore({ name, detail = "" }: FaultSpan, store: string): boolean {
  // A command that failed may have half happened, and does not say to which store.
  return !OF_ENTRY.includes(name) || detail.startsWith("failed") || detail.split(" ")[0] === store;
}
