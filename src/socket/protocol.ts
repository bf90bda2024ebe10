/**
 * The socket protocol as types: every method's parameters and result, and every notification. Server,
 * client and command line all read it from here; docs/protocol.md tells it to people.
 *
 * Types and plain constants only, so that a client command that imports it starts fast.
 * @module
 */
import type { Holder, Kind } from "../lease/errors.ts";
import type { TenureRecord } from "../lease/tenure.ts";

/** A request line, its newline not counted, is at most 1 MiB: 10,000 store codes of 100 characters. */
export const MAX_REQUEST_BYTES = 1_048_576;

/** Output a client has not read; beyond it the client is cut off. */
export const MAX_BACKLOG_BYTES = 8 * 1_048_576;

/** Stores one `held` may ask about. */
export const MAX_HELD_STORES = 10_000;

/** What {@linkcode Methods} takes with defaults filled in: `K` are the members that have one. */
type Filled<T, K extends keyof T> = Omit<T, K> & Required<Pick<T, K>>;

/** Whether a store is held by this agent, by another node, or by nobody as far as known. */
export type LeaseState = "self" | "other" | "free";

/** Asks for a grant of a store. */
export interface GuardParams {
  readonly store: string;
  /** How long to wait for the turn, the lock and the end of a grace. Default 0. */
  readonly wait_ms?: number;
  /** Whether the grant may overlap other shared grants of the store. Default false. */
  readonly shared?: boolean;
  /** Whether to wait, too, while another node holds the lease. Default false. */
  readonly wait_lease?: boolean;
  /** Whether the answer brings the locked descriptor as SCM_RIGHTS. Default false. */
  readonly pass_lock?: boolean;
  /** Whether to be told each new deadline by `renewed`. Default false. */
  readonly follow?: boolean;
  /** What the write is for; shown to people. */
  readonly purpose?: string;
}

/** A grant: while it lasts, and not after its deadline, its client may write. */
export interface GuardResult {
  readonly token: string;
  readonly store: string;
  readonly epoch: number;
  readonly revision: number;
  readonly node: string;
  /** From the answer to the deadline. */
  readonly remaining_ms: number;
  /** The deadline on CLOCK_BOOTTIME. */
  readonly deadline_boot_ms: number;
  readonly lock_path: string;
  /** Null, or why no coordinator stands behind the grant. */
  readonly unguarded: string | null;
}

/** The commit-point check of a grant. */
export interface VerifyParams {
  readonly token: string;
  readonly store: string;
  /**
   * Whether the answer brings the locked descriptor as SCM_RIGHTS; for a grant that was asked for with
   * `pass_lock`. Default false.
   */
  readonly pass_lock?: boolean;
}

/** The hold was proved by a write that was sent after the question came. */
export interface VerifyResult {
  readonly store: string;
  readonly epoch: number;
  readonly revision: number;
  readonly remaining_ms: number;
}

/** Gives a grant back. */
export interface ReleaseParams {
  readonly token: string;
}

/** Exactly one of the two. */
export interface HeldParams {
  readonly store?: string;
  readonly stores?: readonly string[];
}

/** Whether this agent holds the store, or each of them. */
export interface HeldResult {
  /**
   * One answer for `store`, a map by code for `stores`. `__proto__` is a valid store code: whoever
   * builds or reads the map uses an object without a prototype, or own properties only.
   */
  readonly held: boolean | Readonly<Record<string, boolean>>;
}

/** Asks about one store. */
export interface StoreParams {
  readonly store: string;
}

/** Whose a store is, as far as this agent knows. */
export type HolderResult = Omit<LeaseInfo, "held">;

/** Asks to be told of every change of these stores' leases. */
export interface WatchParams {
  /** Default: every store the agent knows. */
  readonly stores?: readonly string[];
}

/** A watch: its notifications carry its name, and `unwatch` takes it. */
export interface WatchResult {
  readonly subscription: string;
}

/** Ends a watch of this connection. */
export interface UnwatchParams {
  readonly subscription: string;
}

/** How the agent is. What is null is not known yet, or, in standalone mode, does not exist. */
export interface StatusResult {
  readonly version: string;
  readonly node: string;
  readonly incarnation: string;
  readonly address: string | null;
  readonly pid: number;
  readonly uptime_ms: number;
  readonly mode: "nats" | "standalone";
  readonly state: "starting" | "serving" | "draining";
  readonly ttl_ms: number | null;
  readonly grace_ms: number | null;
  readonly coordinator: {
    readonly connected: boolean;
    readonly server: string | null;
    readonly version: string | null;
    readonly rtt_ms: number | null;
  };
  readonly counts: {
    readonly held: number;
    readonly waiting: number;
    readonly foreign: number;
    readonly grants: number;
    readonly waiters: number;
    readonly connections: number;
  };
  readonly healthy: boolean;
  readonly checks: readonly StatusCheck[];
  readonly warnings: readonly string[];
}

/** One thing that has to be right for writes to be guarded; `message` says what is wrong, and what to do. */
export interface StatusCheck {
  readonly name: string;
  readonly ok: boolean;
  readonly message: string;
}

/** Asks for a page of the stores that the agent knows, sorted by code. */
export interface LeasesParams {
  /** Only store codes that start with it. */
  readonly prefix?: string;
  /** Only store codes that sort after it: the `next` of the page before. */
  readonly after?: string;
  /** Default 1,000. */
  readonly limit?: number;
}

/** A store's lease. `epoch` and `since` (RFC 3339) are null where they are not known, or nobody has it. */
export interface LeaseInfo {
  readonly store: string;
  readonly state: LeaseState;
  readonly held: boolean;
  readonly node: string | null;
  readonly address: string | null;
  readonly epoch: number | null;
  readonly since: string | null;
}

/** A store in a page of `leases`. */
export interface ListedLease extends LeaseInfo {
  /** Until when this node leaves the store alone: RFC 3339; absent where it was not stepped down. */
  readonly stepped_down_until?: string;
}

/** A page of leases; `next` is what to give as `after` for the one behind it, null for none. */
export interface LeasesResult {
  readonly leases: readonly ListedLease[];
  readonly next: string | null;
}

/** The tenures of a store that the coordinator still has. */
export interface HistoryResult {
  /** Newest first. */
  readonly tenures: readonly TenureRecord[];
}

/** Exactly one of `store` and `all`. */
export interface StepdownParams {
  readonly store?: string;
  readonly all?: boolean;
  /** How long not to acquire again. Default: the lease TTL. */
  readonly for_ms?: number;
}

export interface StepdownResult {
  /** Leases released. */
  readonly released: number;
  /**
   * Leases that were not: kept because a grant did not finish in time, lost, or left to age out, as when
   * the coordinator could not be asked to delete their entries.
   */
  readonly remaining: number;
  /** How many of the remaining are left to age out; absent for none. */
  readonly aging?: number;
  /**
   * Another step-down, or a shutdown, was ordered before this one was carried out, and counts in its place
   * for some of the stores at least; absent if none was.
   */
  readonly overtaken?: true;
}

/** Nothing to tell, or nothing asked. Members, if any, are ignored. */
export type Empty = Readonly<Record<never, never>>;

/** Every method: `params` as sent, `filled` with defaults, and `result`. */
export interface Methods {
  guard: {
    params: GuardParams;
    filled: Filled<GuardParams, "wait_ms" | "shared" | "wait_lease" | "pass_lock" | "follow">;
    result: GuardResult;
  };
  verify: { params: VerifyParams; filled: Filled<VerifyParams, "pass_lock">; result: VerifyResult };
  release: { params: ReleaseParams; filled: ReleaseParams; result: Empty };
  held: { params: HeldParams; filled: HeldParams; result: HeldResult };
  holder: { params: StoreParams; filled: StoreParams; result: HolderResult };
  watch: { params: WatchParams; filled: WatchParams; result: WatchResult };
  unwatch: { params: UnwatchParams; filled: UnwatchParams; result: Empty };
  status: { params: Empty; filled: Empty; result: StatusResult };
  leases: { params: LeasesParams; filled: Filled<LeasesParams, "limit">; result: LeasesResult };
  history: { params: StoreParams; filled: StoreParams; result: HistoryResult };
  stepdown: { params: StepdownParams; filled: StepdownParams; result: StepdownResult };
}

/** The name of a method. */
export type Method = keyof Methods;

/** A grant's deadline: `expiring` when it draws near unrenewed, `renewed` when it moved on. */
export interface DeadlineParams {
  readonly token: string;
  readonly store: string;
  readonly deadline_boot_ms: number;
}

/** A grant is gone; the token never comes back. */
export interface LostParams {
  readonly token: string;
  readonly store: string;
  readonly kind: Kind;
  readonly message: string;
}

/** The state of a watched store. */
export interface LeaseParams extends Omit<LeaseInfo, "since"> {
  readonly subscription: string;
}

/** Every notification and its parameters. */
export interface Notifications {
  expiring: DeadlineParams;
  renewed: DeadlineParams;
  lost: LostParams;
  lease: LeaseParams;
}

/** A notification as it arrives. */
export type Notification = {
  [M in keyof Notifications]: { readonly method: M; readonly params: Notifications[M] };
}[keyof Notifications];

/** The `data` of a domain error. */
export interface ErrorData {
  readonly kind: Kind;
  readonly retry_after_ms?: number;
  readonly holder?: Holder | null;
}

/** The `error` of an answer. Errors of JSON-RPC itself carry no `data`. */
export interface ErrorObject {
  readonly code: number;
  readonly message: string;
  readonly data?: ErrorData;
}
