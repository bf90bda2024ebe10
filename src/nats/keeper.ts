/**
 * Keeps a usable session: dials until one is up, inspects the buckets at once and each minute, and
 * says what is wrong meanwhile. It never gives up, and nothing else waits for it.
 * @module
 */
import type { Inspection } from "./buckets.ts";
import { Changeover } from "./changeover.ts";
import { connectionLost } from "./dial_failure.ts";
import { Dialer } from "./dialer.ts";
import { explainInspection, NoMemberError } from "./inspection_failure.ts";
import type { Link } from "./link.ts";
import type { CreatedBucket, Drift, NatsListener, NatsStats, Problem } from "./listener.ts";
import { LOOK_FAULT_MS, LOOK_RETRY_MS, Lookout } from "./lookout.ts";
import { Membership } from "./membership.ts";
import { checkOptions, type NatsOptions } from "./options.ts";
import { Pause } from "./pause.ts";
import { type ServerFindings, Session, type SessionOptions } from "./session.ts";
import { type Finding, SetupError } from "./setup_error.ts";
import { Troubles } from "./troubles.ts";
import { checkServerVersion } from "./versions.ts";

const STOPPING = "the agent stops";

/** The life of the connections to the coordinator. */
export class Keeper {
  readonly #options: SessionOptions;
  readonly #listener: NatsListener;
  readonly #dialer: Dialer;
  readonly #changeover: Changeover;
  readonly #pause: Pause;
  readonly #loop: Promise<void>;
  #stopped = false;
  #session: Session | null = null;
  /** Whether requests go out. */
  #ready = false;
  /** Whether anything was answered since they do. */
  #vouched = false;
  #ttlMs: number | null = null;
  #aheadMs: number | null = null;
  #warnings: readonly Finding[] = [];
  /** What the servers told of themselves last; not asked yet on a new connection. */
  #findings: ServerFindings = { syncing: null, membership: null };
  #drift: Drift | null = null;
  readonly #lookout: Lookout;
  readonly #troubles: Troubles;

  /** @throws {SetupError} for options that could never work */
  constructor(options: NatsOptions & { readonly bucket: string }, listener: NatsListener) {
    checkOptions(options);
    this.#options = { ...options, membership: new Membership(options) };
    this.#listener = listener;
    this.#troubles = new Troubles((...told) => listener.onProblem(...told));
    this.#dialer = new Dialer(this.#options, (problem) => this.#tell(problem));
    this.#changeover = new Changeover(this.#dialer);
    this.#pause = new Pause(options, LOOK_RETRY_MS);
    this.#lookout = new Lookout(options, listener, {
      pause: this.#pause,
      onAnswered: () => this.#answered(),
    });
    this.#loop = this.#run();
  }

  /** The session that requests go out on, or null. */
  get session(): Session | null {
    return this.#ready ? this.#session : null;
  }

  get ttlMs(): number | null {
    return this.#ttlMs;
  }

  get warnings(): readonly Finding[] {
    const { refused } = this.#changeover;
    return refused === null ? this.#warnings : [...this.#warnings, refused];
  }

  get drift(): Drift | null {
    return this.#drift;
  }

  get problem(): Problem | null {
    return this.#troubles.now;
  }

  stats(): NatsStats {
    const session = this.#session?.link.isUp ? this.#session : null;
    return {
      connected: session !== null,
      ready: this.#vouched && session !== null,
      server: session?.link.server ?? null,
      version: session?.link.serverVersion ?? null,
      rttMs: session?.rttMs ?? null,
      aheadMs: session === null ? null : this.#aheadMs,
    };
  }

  /**
   * Reads the credentials again; if they changed, connects with them, then leaves the old connection.
   *
   * @throws {Error} where they cannot be used; an old connection goes on, with a warning
   */
  async reload(): Promise<void> {
    if (this.#session === null) {
      this.#pause.cut(); // The next dial reads them again.
      return this.#dialer.tryCredentials();
    }
    if (!await this.#changeover.prepare(() => this.#session !== null)) return;
    if (this.#stopped) return await this.#changeover.close(STOPPING);
    await this.#session?.link.close("the credentials were replaced");
    this.#pause.cut();
  }

  /** Ends the connection; all in flight become unknown. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#pause.end();
    await this.#session?.link.close(STOPPING);
    await this.#loop;
    await this.#changeover.close(STOPPING);
  }

  async #run(): Promise<void> {
    // Not in the constructor's turn: the listener's owner does not have us yet.
    await Promise.resolve();
    while (!this.#stopped) {
      const link = this.#changeover.take() ?? await this.#dialer.dial();
      if (link !== null) await this.#serve(link);
      const waitMs = this.problem?.fatal ? LOOK_FAULT_MS : this.#dialer.waitMs;
      if (!this.#changeover.prepared) await this.#pause.for(waitMs);
    }
  }

  /** Uses a connection until it is down. */
  async #serve(link: Link): Promise<void> {
    if (this.#stopped || !link.isUp) return await link.close(STOPPING);
    this.#changeover.changed();
    const session = new Session(link, this.#options, this.#lookout);
    session.findings = this.#findings;
    this.#session = session;
    this.#lookout.begin(session);
    link.onDown((reason) => this.#ended(session, reason));
    if (this.#admit(session)) {
      while (link.isUp) await this.#pause.for(await this.#look(session), link.down);
    }
    // Another member of the cluster may do.
    await link.close("the server is not fit");
  }

  /**
   * Judges the server. A fit one is used at once where the TTL is known from before: leases that are
   * still valid go on as soon as a write gets through, which may be before an inspection does. Until then
   * nobody knows whether the buckets are those of before: what was lost with them may be owed a grace.
   */
  #admit(session: Session): boolean {
    const { allowUnsafeServer = false } = this.#options;
    try {
      session.versionWarning = checkServerVersion(session.link.serverVersion, allowUnsafeServer);
    } catch (error) {
      this.#tellFatal(error as SetupError);
      return false;
    }
    if (this.#ttlMs !== null) {
      this.#listener.onBuckets("unseen");
      this.#open(session, this.#ttlMs);
    }
    return true;
  }

  /** A request was answered: whatever was wrong, the coordinator can be used. */
  #answered(): void {
    if (this.#vouched || this.#session === null || this.#ttlMs === null) return;
    this.#use(this.#session, { ttlMs: this.#ttlMs, created: [] });
  }

  #ended(session: Session, reason: string): void {
    const wasReady = this.#ready;
    this.#ready = false;
    this.#vouched = false;
    this.#session = null;
    this.#changeover.changed();
    session.end(`the connection to the coordinator ended: ${reason}`);
    if (this.#stopped) return;
    // First why: what it means is told with it.
    if (!session.link.closedByUs) this.#tell(connectionLost(reason));
    if (wasReady) this.#listener.onConnection(false);
  }

  /** Looks at the buckets once; returns in how many milliseconds to look again. */
  async #look(session: Session): Promise<number> {
    const { link } = session;
    let inspection: Inspection | null;
    try {
      inspection = await this.#lookout.inspect(
        session,
        this.#options.ttlMs ?? this.#ttlMs ?? undefined,
      );
    } catch (error) {
      if (!link.isUp) return 0;
      this.#listener.onBuckets("unseen");
      if (error instanceof SetupError) return this.#faulty(session, [error]);
      this.#tell(explainInspection(error, link.forbidden));
      if (error instanceof NoMemberError) link.fail("it is not in the cluster");
      return link.forbidden === null ? LOOK_RETRY_MS : LOOK_FAULT_MS;
    }
    if (!link.isUp || inspection === null) return 0;
    this.#aheadMs = inspection.aheadMs;
    this.#lookout.recognise(inspection, this.#ttlMs ?? inspection.ttlMs);
    if (inspection.faults.length > 0) {
      return this.#faulty(session, inspection.faults, inspection.ttlMs);
    }
    const { warnings, againMs } = await this.#lookout.survey(session, inspection);
    if (!link.isUp) return 0;
    this.#fit(session, inspection, warnings);
    void session.askServers();
    return againMs;
  }

  /** The buckets contradict us: fatal before the first use, drift after it. */
  #faulty(session: Session, faults: readonly Finding[], ttlMs = this.#ttlMs): number {
    const { check } = faults[0];
    const message = faults.map((fault) => fault.message).join(". ");
    if (this.#ttlMs === null) {
      this.#tellFatal({ check, message });
    } else {
      const drifted = ttlMs !== null && ttlMs > 0 && ttlMs !== this.#ttlMs;
      this.#setDrift({ check, message, ...(drifted ? { ttlMs } : {}) });
      this.#use(session, { ttlMs: this.#ttlMs, created: [] });
    }
    return LOOK_FAULT_MS;
  }

  /** All is well but for the warnings. */
  #fit(session: Session, inspection: Inspection, more: readonly Finding[]): void {
    this.#findings = session.findings;
    const { syncing, membership } = this.#findings;
    const servers = [session.versionWarning, syncing, membership].filter((found) => found !== null);
    const warnings = [...servers, ...inspection.warnings, ...more];
    const changed = JSON.stringify(warnings) !== JSON.stringify(this.#warnings);
    this.#warnings = warnings;
    this.#ttlMs ??= inspection.ttlMs;
    const over = this.#troubles.over();
    const { created } = inspection;
    const news = changed || over || created.length > 0;
    this.#use(session, { ttlMs: this.#ttlMs, created, news });
    this.#setDrift(null);
  }

  /** Lets requests through, if they are not yet. */
  #open(session: Session, ttlMs: number): void {
    if (this.#ready) return;
    session.open(ttlMs);
    this.#ready = true;
    this.#listener.onConnection(true);
  }

  /**
   * Tells that the coordinator can be used, where that is news: not before it has answered something
   * on this connection, or an outage would end each time that a server takes one and does no more.
   */
  #use(
    session: Session,
    facts: {
      readonly ttlMs: number;
      readonly created: readonly CreatedBucket[];
      readonly news?: boolean;
    },
  ): void {
    const { ttlMs, created, news = false } = facts;
    if (this.#vouched && !news) return;
    if (!this.#vouched) {
      this.#vouched = true;
      this.#dialer.succeeded(session.link);
      this.#troubles.forget();
    }
    const { server, serverVersion } = session.link;
    const warnings = this.#warnings;
    this.#listener.onReady({ ttlMs, server, serverVersion, warnings, created });
    this.#open(session, ttlMs);
  }

  #setDrift(fault: Drift | null): void {
    if (fault?.message === this.#drift?.message) return;
    this.#drift = fault;
    this.#listener.onDrift(fault);
  }

  #tellFatal({ check, message }: Finding): void {
    this.#tell({ fatal: true, check, topic: message, message });
  }

  #tell(problem: Problem): void {
    if (!this.#stopped) this.#troubles.tell(problem);
  }
}
