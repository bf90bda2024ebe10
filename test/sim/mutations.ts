/**
 * The rules that can be switched off, to prove that the checkers notice: those of the core, and
 * those that live around it.
 * @module
 */
import { ALL_RULES, type Rules } from "../../src/lease/rules.ts";

/** Rules around the core. True: in force. */
export interface Mutations {
  /** A create is refused where there is an entry. */
  readonly casCreate: boolean;
  /** A renewal is refused at any revision but the one it expects. */
  readonly casRenew: boolean;
  /** So is the deletion of an entry. */
  readonly casRelease: boolean;
  /** A margin for clock rates is taken off each deadline. */
  readonly margin: boolean;
  /** The flock is really taken. */
  readonly flock: boolean;
  /** A locked file that its path no longer names is noticed. */
  readonly lockCurrent: boolean;
  /** Clients of an earlier incarnation are known by the journal of grants. */
  readonly journal: boolean;
  /**
   * What gone clients left running is known twice: by the journal, for as long as it may write, and
   * by the lock that it has. Either would do here, so both are switched off.
   */
  readonly leftovers: boolean;
  /** Only incarnations of this host's state directory, proven dead, are inherited. */
  readonly provenDead: boolean;
  /** The TTL that a holder goes by stands beside its record. */
  readonly ttlRecord: boolean;
  /** A grace owed is remembered across a restart. */
  readonly graceMemory: boolean;
  /** A stranger seen is remembered across a restart. */
  readonly strangerMemory: boolean;
}

const AROUND: Mutations = {
  casCreate: true,
  casRenew: true,
  casRelease: true,
  margin: true,
  flock: true,
  lockCurrent: true,
  journal: true,
  leftovers: true,
  provenDead: true,
  ttlRecord: true,
  graceMemory: true,
  strangerMemory: true,
};

/** Every rule that can be switched off, by name. */
export const RULES: readonly string[] = [...Object.keys(ALL_RULES), ...Object.keys(AROUND)];

/** All rules in force, but for the one named. */
export function without(rule: string | null): { rules: Rules; mutations: Mutations } {
  if (rule === null) return { rules: ALL_RULES, mutations: AROUND };
  if (!RULES.includes(rule)) throw new Error(`No such rule: ${rule}; see --mutations`);
  return {
    rules: rule in ALL_RULES ? { ...ALL_RULES, [rule]: false } : ALL_RULES,
    mutations: rule in AROUND ? { ...AROUND, [rule]: false } : AROUND,
  };
}
