/**
 * Looks after the buckets on a connection that is up: what they are, what is denied, and whether the
 * tenures are followed; and when to look again.
 * @module
 */
import type { Inspection } from "./buckets.ts";
import { type Denial, Denials } from "./denials.ts";
import type { NatsListener } from "./listener.ts";
import type { NatsOptions } from "./options.ts";
import type { Pause } from "./pause.ts";
import { parseTtl } from "./records.ts";
import type { Session, SessionHooks } from "./session.ts";
import type { Finding } from "./setup_error.ts";
import type { WatchPosition } from "./watch.ts";

/** How often the buckets are looked at, in milliseconds. */
const LOOK_MS = 60_000;
/** …while something is wrong that a person has to put right, so that it is seen soon. */
export const LOOK_FAULT_MS = 5_000;
/** …while JetStream does not answer, which an election mends within seconds; never more often. */
export const LOOK_RETRY_MS = 1_000;

/** So many different denials are looked at at once; the rest waits for the next look. */
const MAX_DENIED = 100;

/** What was found besides the buckets. */
export interface Surroundings {
  readonly warnings: readonly Finding[];
  /** In how many milliseconds to look again. */
  readonly againMs: number;
}

/** What a lookout needs of whoever keeps the connections. */
export interface LookoutHooks {
  /** Between two looks: it is cut short when something seems to have changed. */
  readonly pause: Pause;
  /** A request was answered, and not with an error. */
  onAnswered(): void;
}

/** The looks of one agent, connection after connection. */
export class Lookout implements SessionHooks {
  readonly #options: NatsOptions & { readonly bucket: string };
  readonly #listener: NatsListener;
  readonly #pause: Pause;
  readonly #onAnswered: () => void;
  readonly #denials: Denials;
  /** What was denied on this connection since all was allowed, in words. */
  readonly #denied = new Set<string>();
  #position: WatchPosition | null = null;
  /** When the two buckets were made, as seen last. */
  #made: string | null;
  /** The TTL that an agent of this host went by when it last remembered them, ms; null: not known. */
  readonly #ttlBeforeMs: number | null;
  /** When, on CLOCK_BOOTTIME, they were seen to be others than those that are remembered. */
  #otherSinceMs = -Infinity;
  /** Whether a bucket was deleted since the newest inspection began. */
  #deleted = false;
  /** How often in a row the tenures could not be followed. */
  #unfollowed = 0;
  /** Whether a request was not answered since one was. */
  #doubted = false;
  /** Has an inspection that hangs made anew. */
  #lookAnew: (() => void) | null = null;

  constructor(
    options: NatsOptions & { readonly bucket: string },
    listener: NatsListener,
    keeper: LookoutHooks,
  ) {
    this.#options = options;
    const remembered = options.memory?.madeOf(options.bucket) ?? null;
    this.#made = remembered && remembered.split(" ", 2).join(" ");
    this.#ttlBeforeMs = parseTtl(remembered?.split(" ")[2]) ?? null;
    this.#listener = listener;
    this.#pause = keeper.pause;
    this.#onAnswered = keeper.onAnswered;
    this.#denials = new Denials(options.bucket, (...told) => listener.onDenied(...told));
  }

  /** Another connection: what was denied on the last one may be allowed on it. */
  begin(session: Session): void {
    this.#denials.begin();
    this.#denied.clear();
    session.link.onDenied((denial) => this.#onDenied(session, denial));
  }

  onTenure(...told: Parameters<SessionHooks["onTenure"]>): void {
    this.#listener.onTenure(...told);
  }

  onTrouble(): void {
    this.#doubted = true;
    this.#pause.cutSoon();
  }

  onDeleted(): void {
    this.#deleted = true;
    this.#listener.onBuckets("unseen");
  }

  onAnswer(subject: string, decided: boolean): void {
    if (this.#denials.allow(subject)) {
      this.#denied.clear();
      this.#pause.cutSoon();
    }
    if (!decided) return;
    this.#onAnswered();
    if (!this.#doubted) return;
    this.#doubted = false;
    this.#lookAnew?.();
  }

  /**
   * Inspects the buckets, of which this TTL is expected. New ones get it, or that of those before: an agent
   * that is started again must not change the fleet's TTL because the buckets were lost. Null: it hung, as
   * in an election, and is to be made anew, since requests that were not answered are again; its own
   * question may be lost.
   */
  inspect(session: Session, wantedTtlMs: number | undefined): Promise<Inspection | null> {
    const { clock } = this.#options;
    const startMs = clock.bootMs();
    this.#deleted = false;
    return new Promise((resolve, reject) => {
      this.#lookAnew = () => {
        if (clock.bootMs() - startMs > LOOK_RETRY_MS) resolve(null);
      };
      const newTtlMs = wantedTtlMs ?? this.#ttlBeforeMs ?? undefined;
      session.inspect({ wantedTtlMs, newTtlMs }).then(resolve, reject);
    });
  }

  /**
   * Tells whether the buckets are those that were seen before, by this agent or one before it on this host.
   * The new one is remembered only when what is owed for it is over: until then, an agent that is started
   * again finds the old one on its disk, and owes the same.
   */
  recognise({ leasesCreated, tenuresCreated, ttlMs = 0 }: Inspection, ownTtlMs = ttlMs): void {
    const { memory, bucket, clock } = this.#options;
    const made = `${leasesCreated} ${tenuresCreated}`;
    const before = this.#made;
    this.#made = made;
    const others = before !== null && before !== made;
    if (others) {
      this.#otherSinceMs = clock.bootMs();
      const seen = before === "" ? "forgotten" : "others";
      this.#listener.onBuckets(seen, this.#ttlBeforeMs ?? undefined);
    } else {
      // One that was deleted meanwhile was looked at before that: another look follows.
      this.#listener.onBuckets(this.#deleted ? "unseen" : "known");
    }
    // Grants by the buckets that were lost live as long as the longest TTL says.
    const longestMs = Math.max(ttlMs, ownTtlMs, this.#ttlBeforeMs ?? 0);
    if (clock.bootMs() >= this.#otherSinceMs + 2 * longestMs) {
      memory?.rememberMade(bucket, `${made} ${ownTtlMs}`);
    }
  }

  /** Follows the tenures, and tries what an agent needs to be allowed. */
  async survey(session: Session, { tenuresCreated }: Inspection): Promise<Surroundings> {
    const [position] = await Promise.all([
      session.follow(tenuresCreated, this.#position),
      this.#denials.probe(session.link.nc),
    ]);
    const followed = "seq" in position;
    this.#position = followed ? position : null;
    const warnings = followed ? [] : [position];
    this.#unfollowed = followed ? 0 : this.#unfollowed + 1;
    if (this.#denials.finding !== null) return { warnings, againMs: LOOK_FAULT_MS };
    if (followed) this.#denied.clear();
    // Nothing fails for want of it: a server is not to be asked for it in vain all the time.
    const againMs = LOOK_FAULT_MS * 2 ** (this.#unfollowed - 1);
    return { warnings, againMs: followed ? LOOK_MS : Math.min(LOOK_MS, againMs) };
  }

  #onDenied({ link, requests }: Session, denial: Denial): void {
    const why = this.#denials.note(denial);
    // Nothing would ever be answered again on this connection.
    if (requests?.hears(denial)) return link.fail(why);
    requests?.denied(denial.subject, why);
    // Looked at once for each: what a look itself is denied would have the next one follow at once.
    if (this.#denied.has(why) || this.#denied.size >= MAX_DENIED) return;
    this.#denied.add(why);
    this.#pause.cutSoon();
  }
}
