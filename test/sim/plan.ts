/**
 * What a seed decides before anything happens: the fleet, its clocks, which faults it suffers.
 * Each seed has some kinds of fault and not others, so that combinations differ between seeds.
 * @module
 */
import type { Random } from "./random.ts";

/** Every kind of fault. */
export const FAULTS = [
  "partition",
  "one_way",
  "reset",
  "freeze",
  "failover",
  "jump",
  "delete_entry",
  "overwrite_entry",
  "remake_bucket",
  "low_bucket",
  "amnesia",
  "pause_agent",
  "pause_host",
  "crash",
  "reboot",
  "wipe",
  "drain",
  "stepdown",
  "remake_store",
  "full_disk",
  "break_lock",
  "change_ttl",
] as const;

export type Fault = typeof FAULTS[number];

/** Faults after which an entry can be gone before its holder's deadline: what the grace is for. */
const EARLY: ReadonlySet<Fault> = new Set([
  "jump",
  "delete_entry",
  "overwrite_entry",
  "remake_bucket",
  "low_bucket",
  "amnesia",
  "change_ttl",
]);

/** Few kinds of fault, and so many of each: what it takes for several to meet within one TTL. */
const THEMES: readonly { readonly older: boolean; readonly faults: readonly Fault[] }[] = [
  { older: false, faults: ["crash", "drain", "stepdown"] },
  { older: true, faults: ["crash", "reboot", "delete_entry", "jump"] },
  { older: false, faults: ["crash", "delete_entry", "pause_agent", "partition"] },
  { older: false, faults: ["change_ttl", "crash", "pause_agent", "partition"] },
];

/** One seed's world. */
export interface Plan {
  readonly ttlMs: number;
  /** Where it is the TTL, nobody set it. */
  readonly graceMs: number;
  readonly interestMs: number;
  readonly drainMs: number;
  readonly nodes: number;
  readonly stores: readonly string[];
  /** Two of the nodes have the same name. */
  readonly duplicate: boolean;
  /** A program that knows nothing of incarnations, tenures and graces takes part. */
  readonly older: boolean;
  /** All hosts see one file system, flock and all. */
  readonly sharedDisk: boolean;
  /** Stores are held whether or not anybody asks. */
  readonly pinned: boolean;
  readonly serverRate: number;
  readonly rates: readonly number[];
  /** Of one message, on average. */
  readonly latencyMs: number;
  readonly lossRate: number;
  readonly slowRate: number;
  readonly twiceRate: number;
  /** Conflicts do not tell the newest revision, as replicated streams often do not. */
  readonly muteConflicts: boolean;
  readonly staleReads: boolean;
  readonly faults: readonly Fault[];
  /** Mean time between faults. */
  readonly faultEveryMs: number;
  readonly clientsPerNode: number;
  readonly thinkMs: number;
  /** When the last fault begins; all are over within {@linkcode QUIET_MS}. */
  readonly safetyMs: number;
}

/** How long after the last fault the last delayed message has arrived. */
export const QUIET_MS = 7_000;

/** Clocks run within this of the true rate: half the deadline's margin on either side. */
const CLOCK_ERROR = 0.01;

/** Draws a plan. */
export function drawPlan(random: Random): Plan {
  const ttlMs = random.pick([3_000, 3_000, 6_000, 15_000]);
  // Without a grace nothing but the deadline keeps two holders apart: where no entry goes early,
  // that must be enough. So these seeds show what deadlines are worth.
  const bare = random.chance(0.2);
  const theme = random.chance(0.3) ? random.pick(THEMES) : null;
  const older = theme?.older ?? random.chance(0.25);
  const faults = (theme?.faults ?? FAULTS.filter((fault) => random.chance(rarity(fault))))
    .filter((fault) => !(bare && EARLY.has(fault)))
    // It knows of no TTL but its own.
    .filter((fault) => !(older && fault === "change_ttl"));
  const nodes = 2 + random.below(4);
  const lossy = random.chance(0.5);
  return {
    ttlMs,
    graceMs: bare ? 0 : random.chance(0.15) ? 2 * ttlMs : ttlMs,
    interestMs: random.chance(0.3) ? random.between(2.5, 5) * ttlMs : 900_000,
    drainMs: random.pick([200, 2_000, 30_000]),
    nodes,
    stores: ["one", "two", "three"].slice(0, 1 + random.below(3)),
    duplicate: !bare && random.chance(0.1),
    older,
    sharedDisk: random.chance(0.3),
    pinned: random.chance(0.2),
    serverRate: drawRate(random),
    rates: Array.from({ length: nodes }, () => drawRate(random)),
    latencyMs: random.pick([0.3, 2, 20, 60]),
    lossRate: lossy ? random.between(0, 0.1) : 0,
    slowRate: lossy ? random.between(0, 0.1) : 0,
    twiceRate: lossy ? random.between(0, 0.1) : 0,
    muteConflicts: random.chance(0.3),
    staleReads: random.chance(0.3),
    faults,
    faultEveryMs: random.pick(theme === null ? [300, 1_000, 3_000] : [300, 1_000]),
    clientsPerNode: 1 + random.below(3),
    thinkMs: random.pick([50, 300, 1_500]),
    safetyMs: random.between(4, 10) * ttlMs,
  };
}

/** Any rate within bounds, and more often than chance the bounds themselves. */
function drawRate(random: Random): number {
  return 1 + CLOCK_ERROR * (random.chance(0.5) ? random.pick([-1, 1]) : random.between(-1, 1));
}

function rarity(fault: Fault): number {
  // These end a whole past: after one of them little else can be observed.
  if (fault === "low_bucket" || fault === "amnesia") return 0.05;
  return 0.35;
}
