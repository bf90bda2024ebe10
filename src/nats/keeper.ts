/**
 * Keeps a usable session: dials until one is up, inspects the buckets at once and each minute, and
 * says what is wrong meanwhile. It never gives up, and nothing else waits for it.
 * @module
 */
import { explainInspection, type Inspection } from "./buckets.ts";
import { type Credentials, readCredentials } from "./credentials.ts";
import { Link } from "./link.ts";
import type { NatsListener, NatsStats, Problem } from "./listener.ts";
import { checkOptions, type NatsOptions } from "./options.ts";
import { Pause } from "./pause.ts";
import { Session } from "./session.ts";
import { type Finding, SetupError } from "./setup_error.ts";
import { checkServerVersion } from "./versions.ts";
import type { WatchPosition } from "./watch.ts";

/** Waits between dials double from the first to the last, each give or take a half, so that a fleet does not come back in one moment. In milliseconds. */
const DIAL_WAIT_FIRST_MS = 100;
const DIAL_WAIT_LAST_MS = 1_000;

/** How often the buckets are looked at (SPEC 1.4), in milliseconds. */
const LOOK_MS = 60_000;
/** …while something is wrong that a person has to put right, so that it is seen soon. */
const LOOK_FAULT_MS = 5_000;
/** …while JetStream does not answer, which an election mends within seconds; never more often. */
const LOOK_RETRY_MS = 1_000;

/** The life of the connections to the coordinator. */
export class Keeper {
  readonly #options: NatsOptions & { readonly bucket: string };
  readonly #listener: NatsListener;
  readonly #pause: Pause;
  readonly #loop: Promise<void>;
  #stopped = false;
  #session: Session | null = null;
  #ready = false;
  #ttlMs: number | null = null;
  #warnings: readonly Finding[] = [];
  #drift: Finding | null = null;
  #problem: Problem | null = null;
  /** Told since the coordinator was last usable: two servers that fail in turn are told once each. */
  readonly #told = new Set<string>();
  #position: WatchPosition | null = null;
  #failedDials = 0;
  #fingerprint: string | null = null;
  #nextLink: Link | null = null;
  #gossip: readonly string[] = [];

  /** @throws {SetupError} for options that could never work */
  constructor(options: NatsOptions & { readonly bucket: string }, listener: NatsListener) {
    checkOptions(options);
    this.#options = options;
    this.#listener = listener;
    this.#pause = new Pause(options, LOOK_RETRY_MS);
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
    return this.#warnings;
  }

  get drift(): Finding | null {
    return this.#drift;
  }

  get problem(): Problem | null {
    return this.#problem;
  }

  stats(): NatsStats {
    const session = this.#session?.link.isUp ? this.#session : null;
    return {
      connected: session !== null,
      ready: this.#ready && session !== null,
      server: session?.link.server ?? null,
      version: session?.link.serverVersion ?? null,
      rttMs: session?.rttMs ?? null,
    };
  }

  /** Reads the credentials again; if they changed, connects with them, then leaves the old connection. */
  async reload(): Promise<void> {
    const credentials = this.#readCredentials();
    if (credentials === null || credentials.fingerprint === this.#fingerprint) return;
    if (this.#session === null) return this.#pause.cut(); // The next dial reads them anyway.
    const link = await this.#dial(credentials);
    if (link === null) return; // The old connection goes on.
    this.#nextLink = link;
    await this.#session?.link.close("the credentials were replaced");
  }

  /** Ends the connection; all in flight become unknown. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#pause.end();
    await this.#session?.link.close("the agent stops");
    await this.#loop;
    await this.#nextLink?.close("the agent stops");
  }

  async #run(): Promise<void> {
    // Not in the constructor's turn: the listener's owner does not have us yet.
    await Promise.resolve();
    while (!this.#stopped) {
      const link = this.#takeNextLink() ?? await this.#dialAsRead();
      if (link !== null) await this.#serve(link);
      if (this.#nextLink === null) await this.#pause.for(this.#dialWaitMs());
    }
  }

  #takeNextLink(): Link | null {
    const link = this.#nextLink;
    this.#nextLink = null;
    return link;
  }

  #dialWaitMs(): number {
    if (this.#problem?.fatal) return LOOK_FAULT_MS;
    const doubled = DIAL_WAIT_FIRST_MS * 2 ** Math.min(this.#failedDials, 10);
    return Math.min(doubled, DIAL_WAIT_LAST_MS) * (0.5 + Math.random());
  }

  #readCredentials(): Credentials | null {
    const { credentials = {}, urls } = this.#options;
    const requireTls = urls.some((url) => /^tls:/i.test(url));
    try {
      return readCredentials(credentials, requireTls);
    } catch (error) {
      this.#tell({ fatal: false, check: "credentials", message: (error as Error).message });
      return null;
    }
  }

  #dialAsRead(): Promise<Link | null> {
    this.#failedDials++;
    const credentials = this.#readCredentials();
    return credentials === null ? Promise.resolve(null) : this.#dial(credentials);
  }

  async #dial(credentials: Credentials): Promise<Link | null> {
    const { urls, node, incarnation } = this.#options;
    // Servers heard of are addresses, which a certificate may not name.
    const servers = credentials.tls === undefined ? [...new Set([...urls, ...this.#gossip])] : urls;
    try {
      const name = `zit-agent ${node} ${incarnation}`;
      const link = await Link.open({ servers, name, credentials });
      this.#fingerprint = credentials.fingerprint;
      return link;
    } catch (error) {
      this.#tell(explainDial(error as Error, servers));
      return null;
    }
  }

  /** Uses a connection until it is down. */
  async #serve(link: Link): Promise<void> {
    if (this.#stopped) return await link.close("the agent stops");
    const session = new Session(link, this.#options, {
      onTenure: (store, record) => this.#listener.onTenure(store, record),
      onTrouble: () => this.#pause.cutSoon(),
    });
    this.#session = session;
    link.onDown((reason) => this.#ended(session, reason));
    while (link.isUp && !this.#stopped) {
      const waitMs = await this.#look(session);
      if (link.isUp) await this.#pause.for(waitMs, link.down);
    }
    await link.close("not needed any more");
  }

  #ended(session: Session, reason: string): void {
    const wasReady = this.#ready;
    this.#ready = false;
    this.#session = null;
    session.end(`the connection to the coordinator ended: ${reason}`);
    if (this.#stopped) return;
    if (wasReady) {
      this.#listener.onConnection(false);
      this.#tell({ fatal: false, check: "connection", message: `Connection lost: ${reason}` });
    }
  }

  /** Looks once; returns in how many milliseconds to look again. */
  async #look(session: Session): Promise<number> {
    const { link } = session;
    let inspection: Inspection;
    let versionWarning: Finding | null;
    try {
      versionWarning = checkServerVersion(
        link.serverVersion,
        this.#options.allowUnsafeServer ?? false,
      );
      inspection = await session.inspect(this.#options.ttlMs ?? this.#ttlMs ?? undefined);
    } catch (error) {
      return await this.#lookFailed(session, error);
    }
    if (!link.isUp) return 0;
    if (inspection.faults.length > 0) return this.#faulty(session, inspection.faults);
    const position = await session.follow(inspection.tenuresCreated, this.#position);
    if (!link.isUp) return 0;
    const followed = "seq" in position;
    this.#position = followed ? position : null;
    const warnings = [...inspection.warnings];
    if (versionWarning !== null) warnings.unshift(versionWarning);
    if (!followed) warnings.push(position);
    this.#fit(session, inspection, warnings);
    return followed ? LOOK_MS : LOOK_FAULT_MS;
  }

  async #lookFailed(session: Session, error: unknown): Promise<number> {
    const { link } = session;
    if (!link.isUp) return 0;
    if (error instanceof SetupError) {
      this.#tell({ fatal: true, exit: error.exit, check: error.check, message: error.message });
      // Another member of the cluster may do.
      if (error.check === "server_version") await link.close(error.message);
      return LOOK_FAULT_MS;
    }
    // Once usable, a session stays so: each request tells by itself what becomes of it.
    if (!this.#ready) this.#tell({ fatal: false, ...explainInspection(error, link.forbidden) });
    return LOOK_RETRY_MS;
  }

  /** The buckets contradict us: fatal before the first use, drift after it. */
  #faulty(session: Session, faults: readonly Finding[]): number {
    const { check } = faults[0];
    const message = faults.map((fault) => fault.message).join(". ");
    if (this.#ttlMs === null) {
      this.#tell({ fatal: true, exit: new SetupError(check, message).exit, check, message });
    } else {
      this.#setDrift({ check, message });
      this.#use(session, this.#ttlMs, { created: [] });
    }
    return LOOK_FAULT_MS;
  }

  #fit(session: Session, inspection: Inspection, warnings: readonly Finding[]): void {
    this.#ttlMs ??= inspection.ttlMs;
    const changed = JSON.stringify(warnings) !== JSON.stringify(this.#warnings);
    this.#warnings = warnings;
    this.#use(session, this.#ttlMs, {
      created: inspection.created,
      news: changed || inspection.created.length > 0,
    });
    this.#setDrift(null);
  }

  #use(
    session: Session,
    ttlMs: number,
    options: { readonly created: readonly Finding[]; readonly news?: boolean },
  ): void {
    const fresh = !this.#ready;
    if (!fresh && !options.news) return;
    session.open(ttlMs);
    this.#ready = true;
    this.#problem = null;
    this.#told.clear();
    this.#failedDials = 0;
    this.#gossip = session.link.nc.info?.connect_urls ?? this.#gossip;
    const { server, serverVersion } = session.link;
    const { created } = options;
    this.#listener.onReady({ ttlMs, server, serverVersion, warnings: this.#warnings, created });
    if (fresh) this.#listener.onConnection(true);
  }

  #setDrift(fault: Finding | null): void {
    if (fault?.message === this.#drift?.message) return;
    this.#drift = fault;
    this.#listener.onDrift(fault);
  }

  #tell(problem: Problem): void {
    if (this.#stopped) return;
    if (this.#ready) return this.#listener.onProblem(problem); // An event: a failed reload.
    this.#problem = problem;
    if (this.#told.has(problem.message)) return;
    this.#told.add(problem.message);
    this.#listener.onProblem(problem);
  }
}

function explainDial(error: Error, servers: readonly string[]): Problem {
  const refused = error.name === "AuthorizationError" ||
    error.name === "UserAuthenticationExpiredError";
  const list = servers.join(", ");
  const why = error?.message || "no reason given";
  return refused
    ? {
      fatal: false,
      check: "authentication",
      message: `The coordinator at ${list} refuses our credentials (${why}): still trying`,
    }
    : {
      fatal: false,
      check: "connection",
      message: `Cannot connect to the coordinator at ${list}: ${why}`,
    };
}
