/**
 * What happened in a run, as JSON lines: every request, grant, write, release, loss, refusal and
 * fault, with its time. Written while it happens, by several processes into files of their own, and
 * checked afterwards by a program that knows nothing but these lines.
 *
 * All times are CLOCK_BOOTTIME in milliseconds: one clock for all "hosts" of a run, whatever is done
 * to their wall clocks.
 * @module
 */
import { closeSync, openSync, writeSync } from "node:fs";
import { bootTimeMs } from "../../src/sys/boot_time.ts";

/** What the run promised; the first line of a history. */
export interface Setup {
  readonly kind: "setup";
  readonly seed: number;
  readonly ttlMs: number;
  readonly graceMs: number;
  readonly nodes: readonly string[];
  /** Those of them that run the older program, which keeps to less than agents do. */
  readonly older?: readonly string[];
  readonly stores: readonly string[];
  /** Whether all nodes have the same lock files, or each its own. */
  readonly locks: "shared" | "own";
  readonly network: "namespaces" | "loopback";
  /** How long after everything was healed each store must have been granted again. */
  readonly recoveryMs: number;
  readonly servers: string;
  /** When servers write to disk: before they acknowledge, or every so often. */
  readonly sync?: "always" | "default";
}

/** A guard was asked for. `id` is unique in the run; `client` names the process and its loop. */
export interface Ask {
  readonly kind: "ask";
  readonly id: string;
  readonly node: string;
  readonly store: string;
  readonly via: "socket" | "guard";
  readonly waitMs: number;
  readonly waitLease: boolean;
  /** The lines that a command writes which ends with status 0; absent where it is not settled. */
  readonly writes?: number;
}

/**
 * The guard was granted. By socket: the answer arrived, and `deadlineMs` is what it said. By `agent
 * guard`: its command began to run; it knows no deadline, and does not look: it is killed in time.
 */
export interface Grant {
  readonly kind: "grant";
  readonly id: string;
  readonly node: string;
  readonly store: string;
  readonly epoch: number;
  readonly deadlineMs: number | null;
}

/** The guard was refused, or failed: `why` is the kind, or `gone` where the agent went away. */
export interface Refused {
  readonly kind: "refused";
  readonly id: string;
  readonly node: string;
  readonly store: string;
  readonly why: string;
  readonly holder?: { readonly node: string; readonly epoch: number | null } | null;
  readonly retryAfterMs?: number | null;
  readonly message?: string;
}

/** The grant's deadline moved on: told by `renewed`, or by the answer to a verify. */
export interface Extended {
  readonly kind: "extended";
  readonly id: string;
  readonly by: "verify" | "renewed";
  readonly deadlineMs: number;
  /** When the verify was sent. */
  readonly sentMs?: number;
}

/**
 * A verify of a grant that was over for its client: what it was answered with, `ok` or a kind; sent
 * after the release was acknowledged, or before it was sent.
 */
export interface Afterwards {
  readonly kind: "afterwards";
  readonly id: string;
  readonly released: boolean;
  readonly answer: string;
}

/** A verify was refused; the grant is over. */
export interface Unverified {
  readonly kind: "unverified";
  readonly id: string;
  readonly why: string;
}

/** The client was told that its grant is lost, or its connection closed. */
export interface Lost {
  readonly kind: "lost";
  readonly id: string;
  readonly why: string;
}

/** The client is about to send its release. Nothing is written after it. */
export interface Release {
  readonly kind: "release";
  readonly id: string;
}

/** The command of `agent guard` has ended, or its wrapper has, with this status. */
export interface Exit {
  readonly kind: "exit";
  readonly id: string;
  readonly status: number | null;
}

/** The processes whose ids start so are about to be killed. */
export interface Gone {
  readonly kind: "gone";
  readonly prefix: string;
}

/**
 * A line of a store's log, in the order of that log. `t` was read right before it was appended, and
 * `doneMs`, where the writer could tell, right after.
 */
export interface Written {
  readonly kind: "written";
  readonly store: string;
  readonly index: number;
  readonly id: string;
  readonly node: string;
  readonly epoch: number;
  readonly seq: number;
  readonly doneMs?: number;
}

/** Its writer says that it has written this line; in a history only where the log lacks it. */
export interface Wrote {
  readonly kind: "wrote";
  readonly id: string;
  readonly seq: number;
}

/** A fault begins; it ends with `healed` of the same id, or at once. */
export interface Fault {
  readonly kind: "fault";
  readonly fault: number;
  readonly name: string;
  readonly targets: readonly string[];
  readonly detail?: string;
}

export interface Healed {
  readonly kind: "healed";
  readonly fault: number;
}

/** Everything is healed: from here on every store has to be granted again in time. */
export interface Calm {
  readonly kind: "calm";
}

/** The next fault is about to begin, or the run ends: what was due since `calm` is due no more. */
export interface Disturbed {
  readonly kind: "disturbed";
}

/**
 * A tenure record as somebody who follows the bucket sees it; or, of the older program, which leaves
 * none, what it says itself: that it has acquired the store, and that it lets it go.
 */
export interface TenureSeen {
  readonly kind: "tenure";
  readonly store: string;
  readonly node: string;
  readonly epoch: number;
  readonly closed: boolean;
}

/** The clients were told to stop: nothing is asked after it. */
export interface End {
  readonly kind: "end";
}

/** One line of a history. */
export type Event =
  & { readonly t: number }
  & (
    | Setup
    | Ask
    | Grant
    | Refused
    | Extended
    | Afterwards
    | Unverified
    | Lost
    | Release
    | Exit
    | Gone
    | Written
    | Wrote
    | Fault
    | Healed
    | Calm
    | Disturbed
    | TenureSeen
    | End
  );

/** An event without its time, whatever its kind. */
export type Happening = Event extends infer E ? E extends Event ? Omit<E, "t"> : never : never;

/** An event of one kind. */
export type EventOf<K extends Event["kind"]> = Extract<Event, { kind: K }>;

/** Appends events to a file, each with one write: a process that is killed loses none before it. */
export class HistoryFile {
  readonly #fd: number;

  constructor(path: string) {
    this.#fd = openSync(path, "a");
  }

  /** Notes what happens now, or happened at `t`. */
  note(happening: Happening, t = bootTimeMs()): number {
    writeSync(this.#fd, JSON.stringify({ t: round(t), ...happening }) + "\n");
    return t;
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** To microseconds: enough to order what happened, and lines stay readable. */
function round(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
