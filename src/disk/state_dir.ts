/**
 * The state directory: what an agent has to know of the agents that ran on this host before it.
 *
 * | file | what it holds |
 * | --- | --- |
 * | `lock` | locked for the life of the process: whoever has the directory knows the others dead |
 * | `incarnations` | the incarnations of this host, newest last |
 * | `grants` | grants that are out, with the client's process |
 * | `strangers` | stores in which a foreign entry without a tenure record was seen |
 * | `graces` | failover graces that are owed and not over |
 * | `clusters` | buckets that were used on servers of a cluster |
 * | `buckets` | when the buckets were made that were used |
 *
 * What cannot be read proves nothing. A damaged file may have lost a grant whose client still
 * writes, or a grace still owed, so with damage the earlier incarnations are forgotten: their
 * entries then count as those of a foreign holder, which costs a grace.
 * @module
 */
import { join, resolve } from "node:path";
import { bootTimeMs } from "../sys/boot_time.ts";
import { bootId, machineId } from "../sys/proc.ts";
import { GrantJournal } from "./grant_journal.ts";
import { LogMap } from "./log_map.ts";
import { type DirectoryLock, occupy, unusable } from "./state_lock.ts";

export { type JournaledGrant } from "./grant_journal.ts";
export { StateDirError } from "./state_lock.ts";

/**
 * How many incarnations are remembered. An entry outlives its incarnation by a TTL at most, so the
 * last one would do, were it not for agents that crash one after the other within one TTL.
 */
const MAX_INCARNATIONS = 64;

/** Stands for every bucket; none has a name like that. */
const ANY = "*";

/** When a bucket was made that may have been known, and is not any more. */
const FORGOTTEN = "";

/** Who opens a state directory. */
export interface StateDirOptions {
  /** The id of this run of the agent. */
  readonly incarnation: string;
  /** The host's unique name. */
  readonly node: string;
  /** Whether somebody has a store's lock now; see {@linkcode GrantJournalOptions}. */
  readonly isLocked?: (store: string) => boolean;
  /** The id of the machine's present boot, for tests of a restart of the machine. */
  readonly boot?: string;
  /** The id of the machine, for tests of a copied disk. */
  readonly machine?: string;
}

/** What the directory's files have in common. */
interface Log {
  readonly damage: readonly string[];
  catchUp(): string | null;
  close(): void;
}

interface Incarnation {
  readonly node: string;
  readonly machine: string;
  /** The directory's lock file, which its agent held. */
  readonly lock: string;
  /** RFC 3339, for people. */
  readonly at: string;
}

/** An open state directory; this process alone has it. */
export class StateDir {
  /** The directory's absolute path. */
  readonly path: string;
  /** Whether the directory's own files were damaged, and how; for the log. */
  readonly damage: readonly string[];
  /** The incarnations that ran here before under this node name, all of them dead. */
  readonly previousIncarnations: ReadonlySet<string>;
  /** The journal of grants. */
  readonly journal: GrantJournal;
  readonly #boot: string;
  readonly #incarnations: LogMap<Incarnation>;
  readonly #strangers: LogMap<string>;
  readonly #graces: LogMap<number>;
  readonly #clusters: LogMap<string>;
  readonly #buckets: LogMap<string>;
  readonly #held: readonly Log[];
  readonly #lock: DirectoryLock;
  readonly #strangerSet: Set<string>;

  /** Pushes what it opens onto `held`, for whoever has to close it if the rest cannot be opened. */
  private constructor(
    path: string,
    options: StateDirOptions & { readonly lock: DirectoryLock },
    held: Log[],
  ) {
    const keep = <T extends Log>(log: T): T => (held.push(log), log);
    const { incarnation, node, boot = bootId(), machine = machineId(), isLocked } = options;
    this.path = path;
    this.#boot = boot;
    this.#held = held;
    this.#lock = options.lock;
    const file = <V>(name: string, decode: (value: unknown) => V | null, limit?: number) =>
      keep(LogMap.open(join(path, name), { boot, durable: true, decode, limit }));
    this.journal = keep(new GrantJournal(join(path, "grants"), { boot, isLocked }));
    this.#incarnations = file("incarnations", decodeIncarnation, MAX_INCARNATIONS);
    this.#strangers = file("strangers", decodeText);
    this.#strangerSet = new Set(this.#strangers.entries.keys());
    this.#graces = file("graces", decodeNumber);
    this.#clusters = file("clusters", decodeText);
    // What it said may have been of any bucket: then none is used but in a cluster.
    if (this.#clusters.damage.length > 0) this.#clusters.set(ANY, new Date().toISOString());
    this.#buckets = file("buckets", decodeText);
    const nowMs = bootTimeMs();
    this.#graces.retain((grace) => grace.boot !== boot || grace.value > nowMs);
    this.damage = held.flatMap((log) => log.damage);
    // For good: the next run could not tell any more that there was damage.
    if (this.damage.length > 0) {
      this.#incarnations.retain(() => false);
      this.#buckets.retain(() => false);
      this.#buckets.set(ANY, FORGOTTEN);
    }
    const lock = options.lock.identity;
    this.previousIncarnations = new Set(
      [...this.#incarnations.entries]
        // The lock proves dead only who held this very lock, on this machine since it was started:
        // a copy of the directory, or of the disk, knows nothing of the agent it was copied from.
        .filter(([_, { value, boot: then }]) =>
          value.node === node && value.machine === machine && value.lock === lock && then === boot
        )
        .map(([id]) => id)
        .filter((id) => id !== incarnation),
    );
    const at = new Date().toISOString();
    this.#incarnations.set(incarnation, { node, machine, lock, at });
  }

  /**
   * Takes the directory for this process, making it if it is missing, and records the incarnation.
   * A full disk is no error here: see {@linkcode StateDir.problem}.
   *
   * @throws {StateDirError} when another agent has it, or it cannot be used.
   */
  static open(directory: string, options: StateDirOptions): StateDir {
    const path = resolve(directory);
    const lock = occupy(path, options);
    const held: Log[] = [];
    try {
      return new StateDir(path, { ...options, lock }, held);
    } catch (error) {
      closeAll(held);
      lock.close();
      throw unusable(path, error);
    }
  }

  /**
   * Why the next agent may not find here what this one knows, or find it too soon, and what to do;
   * null while all is well. Looks at the disk, and first writes what it did not take before.
   */
  get problem(): string | null {
    let lock: string | null;
    try {
      lock = this.#lock.problem;
    } catch (error) {
      lock = unusable(this.path, error).message;
    }
    if (lock !== null) return lock;
    const behind = this.#catchUp();
    return behind
      ? `the state directory is behind: ${behind}; free space or restore its mode`
      : null;
  }

  /** Writes what the disk did not take before. Returns null, or why something is still not on it. */
  #catchUp(): string | null {
    return this.#held.map((log) => log.catchUp()).find((why) => why !== null) ?? null;
  }

  /** The stores in which an older program, one that records no tenures, was seen to hold. */
  get strangers(): ReadonlySet<string> {
    return this.#strangerSet;
  }

  /** Remembers a store as held by an older program. Returns null, or why it is not on disk. */
  rememberStranger(store: string): string | null {
    if (this.#strangerSet.has(store)) return null;
    this.#strangerSet.add(store);
    return this.#strangers.set(store, new Date().toISOString());
  }

  /** Forgets it: the grace it made owed is over. Returns null, or why the disk still has it. */
  forgetStranger(store: string): string | null {
    this.#strangerSet.delete(store);
    return this.#strangers.delete(store);
  }

  /**
   * The graces owed, as times on CLOCK_BOOTTIME in milliseconds; Infinity for one that was owed
   * before the machine was started again: nobody knows how much of it is over, so it is owed whole.
   */
  graces(): Map<string, number> {
    return new Map(
      [...this.#graces.entries].map(([store, { value, boot }]) => [
        store,
        boot === this.#boot ? value : Infinity,
      ]),
    );
  }

  /**
   * Remembers that no grant may be given before CLOCK_BOOTTIME reads `untilBootMs`. Returns null,
   * or why it is not on disk.
   */
  rememberGrace(store: string, untilBootMs: number): string | null {
    if (!Number.isFinite(untilBootMs)) throw new RangeError(`Not a time: ${untilBootMs}`);
    const known = this.#graces.entries.get(store);
    if (known?.value === untilBootMs && known.boot === this.#boot) return null;
    return this.#graces.set(store, untilBootMs);
  }

  /** Forgets a grace that is over. Returns null, or why the disk still has it. */
  forgetGrace(store: string): string | null {
    return this.#graces.delete(store);
  }

  /** Whether the bucket was used on servers of a cluster, by this agent or one before it. */
  wasClustered(bucket: string): boolean {
    return this.#clusters.entries.has(bucket) || this.#clusters.entries.has(ANY);
  }

  /** Remembers that it was. Returns null, or why it is not on disk. */
  rememberClustered(bucket: string): string | null {
    if (this.wasClustered(bucket)) return null;
    return this.#clusters.set(bucket, new Date().toISOString());
  }

  /** When the bucket was made, as it was remembered; null where it is not known, and "" where it may not be. */
  madeOf(bucket: string): string | null {
    const { entries } = this.#buckets;
    return (entries.get(bucket) ?? entries.get(ANY))?.value ?? null;
  }

  /**
   * Remembers when it was made. Returns null, or why it is not on disk. It is told each minute, and also
   * when nobody asks for a problem: all that is missing on disk is written then.
   */
  rememberMade(bucket: string, made: string): string | null {
    return this.madeOf(bucket) === made ? this.#catchUp() : this.#buckets.set(bucket, made);
  }

  /** Leaves the directory to others. Otherwise the end of the process does. */
  close(): void {
    closeAll(this.#held);
    this.#lock.close(); // last: from here on the directory is another's
  }
}

function closeAll(held: readonly Log[]): void {
  for (const log of [...held].reverse()) log.close();
}

function decodeIncarnation(value: unknown): Incarnation | null {
  if (typeof value !== "object" || value === null) return null;
  const { node, machine, lock, at } = value as Partial<Record<keyof Incarnation, unknown>>;
  const texts = [node, machine, lock, at];
  if (!texts.every((text) => typeof text === "string")) return null;
  return { node, machine, lock, at } as Incarnation;
}

function decodeText(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function decodeNumber(value: unknown): number | null {
  return Number.isFinite(value) ? value as number : null;
}
