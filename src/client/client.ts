/**
 * The client: what programs call.
 * @module
 */
import process from "node:process";
import type {
  HistoryResult,
  HolderResult,
  LeasesResult,
  ListedLease,
  Method,
  Methods,
  StatusResult,
  StepdownResult,
} from "../socket/protocol.ts";
import { checkMs, MAX_TIMER_MS } from "./bounds.ts";
import type { ConnectOptions } from "./connect.ts";
import { fromHere } from "./executable.ts";
import type { LiveGrant } from "./grant.ts";
import type { Grants } from "./grants.ts";
import { HeldView } from "./held_view.ts";
import { Link } from "./link.ts";
import type { AskOptions, ClientOptions, GuardOptions } from "./options.ts";
import { absoluteSocketPath, defaultSocketPath } from "./socket_path.ts";
import { mintToken, type Token } from "./token.ts";
import { type Disconnected, type LeaseChange, watchStores } from "./watch.ts";
import type { WatchOptions } from "./watcher.ts";

/** The agent waits for the coordinator for 2 s at most; the rest is for a machine that is busy. */
const ANSWER_MS = 10_000;
/** It lets grants finish for `--drain`, 30 s by default; more with longer ones. */
const STEPDOWN_MS = 120_000;

/** Stores of one question: 10,000 are allowed, and 5,000 codes of any length fit in 1 MiB. */
const HELD_AT_ONCE = 5_000;

/**
 * Connects to the agent. Later the client connects again by itself when the agent was restarted.
 *
 * @throws {AgentUnreachable} if nobody listens on the socket, or not in time.
 * @throws {InvalidError} if no socket was given and the environment names none.
 */
export async function connect(options: ClientOptions = {}): Promise<Client> {
  const client = new Client(options);
  await client.reach({ signal: options.signal });
  return client;
}

/** A client of the agent of this host. */
export class Client {
  /** The path of the agent's socket. */
  readonly socket: string;
  readonly #options: ConnectOptions & { readonly socket: string };
  readonly #passLock: string | false;
  readonly #link: Link;

  /** Makes a client that connects when it is first used; {@linkcode connect} does so at once. */
  constructor({ passLock = "agent", socket, timeoutMs }: ClientOptions = {}) {
    this.socket = absoluteSocketPath(
      socket ?? defaultSocketPath(process.env, process.getuid?.() ?? 0),
    );
    this.#options = { socket: this.socket, timeoutMs };
    this.#passLock = passLock && fromHere(passLock);
    this.#link = new Link(this.#options);
  }

  /** Connects, unless connected; within `timeoutMs` if that is less than what connecting may take. */
  async reach(options: AskOptions = {}): Promise<void> {
    options.signal?.throwIfAborted();
    await this.#link.dial(options);
  }

  /**
   * Runs `write` while this node may write to the store, and resolves with its result. What it needs
   * for a writing call is the token, which is refused once `write` has ended.
   * Programs that {@linkcode ZitCli.write} ran, and what they left behind in their process groups, are ended
   * before the grant is given back.
   *
   * @throws {NotHolderError} another node holds the store: `holder` says where to send the write.
   * @throws {BusyError} the turn did not come within `waitMs`; GraceError, DrainingError, LimitError
   * likewise pass.
   * @throws {UnavailableError} the agent or the coordinator cannot be reached, or the agent does not
   * answer within `waitMs` and 10 s.
   * @throws {LostError} the lease went while `write` ran: whether the write took effect has to be
   * looked up. Also when `write` itself resolved.
   * @throws what `write` threw; what the signal aborted with.
   */
  async guard<T>(
    store: string,
    options: GuardOptions,
    write: (token: Token) => T | Promise<T>,
  ): Promise<T> {
    const { on, grant } = await this.#grant(store, options);
    let result: T;
    try {
      result = await write(mintToken(grant));
    } catch (error) {
      await on.end(grant).catch(() => {}); // what the write says is nearer to what went wrong
      throw error;
    }
    await on.end(grant);
    return result;
  }

  async #grant(
    store: string,
    options: GuardOptions,
  ): Promise<{ on: Grants; grant: LiveGrant }> {
    const { waitLease = false, shared = false, purpose, signal } = options;
    const named = options.passLock ?? this.#passLock;
    const passLock = named ? fromHere(named) : null;
    signal?.throwIfAborted();
    const waitMs = Math.min(options.waitMs ?? 0, MAX_TIMER_MS);
    checkMs({ waitMs });
    const sinceMs = performance.now();
    const bounds = { signal, timeoutMs: waitMs + ANSWER_MS, sinceMs };
    const granted = await this.#link.use(async (on) => {
      const params = {
        store,
        // It is waited for from the call on, connecting included.
        wait_ms: Math.max(0, waitMs - (performance.now() - sinceMs)),
        wait_lease: waitLease,
        shared,
        pass_lock: passLock !== null,
        // The protocol's optional members are left out, not null.
        ...(purpose === undefined ? {} : { purpose }),
      };
      return { on, grant: await on.ask(params, { ...bounds, passLock }) };
    }, bounds);
    if (signal?.aborted) {
      await granted.on.end(granted.grant).catch(() => {});
      throw signal.reason;
    }
    return granted;
  }

  /** Whether this node may write to the store now, from the agent's memory. It is no permission. */
  held(store: string, options?: AskOptions): Promise<boolean>;
  /** The same for many stores. */
  held(stores: readonly string[], options?: AskOptions): Promise<Map<string, boolean>>;
  async held(
    asked: string | readonly string[],
    options?: AskOptions,
  ): Promise<boolean | Map<string, boolean>> {
    if (typeof asked === "string") {
      return (await this.#ask("held", { store: asked }, options)).held as boolean;
    }
    const all = new Map<string, boolean>();
    for (let i = 0; i < asked.length; i += HELD_AT_ONCE) {
      const stores = asked.slice(i, i + HELD_AT_ONCE);
      const { held } = await this.#ask("held", { stores }, options);
      for (const [store, is] of Object.entries(held)) all.set(store, is);
    }
    return all;
  }

  /**
   * A local view of which stores are held, kept by a watch, to be asked without a round trip: for
   * schedulers. The stores, if named, are wanted while it lasts; without, it shows those that the
   * agent knows for other reasons. `await view.ready` before the first tick.
   *
   * @throws {InvalidError} if a store's code is none, or the client was closed.
   */
  heldView(stores?: readonly string[]): HeldView {
    return new HeldView(this.#watching(), stores ?? null);
  }

  /** Who holds the store, as the coordinator tells. */
  holder(store: string, options?: AskOptions): Promise<HolderResult> {
    return this.#ask("holder", { store }, options);
  }

  /**
   * The present state of the stores (of all that the agent knows, for null), then each change, over
   * restarts of the agent, until the loop is left or the signal aborts. The loop ends by itself when the
   * client is closed.
   *
   * @throws {InvalidError} if the client was closed before.
   */
  watch(
    stores: readonly string[] | null,
    options: { readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<LeaseChange | Disconnected, void, void> {
    return watchStores(this.#watching(), stores, options.signal);
  }

  /** Who held the store, newest first. */
  async history(store: string, options?: AskOptions): Promise<HistoryResult["tenures"]> {
    return (await this.#ask("history", { store }, options)).tenures;
  }

  /** What the agent holds or follows, sorted by store. */
  async *leases(prefix?: string, options?: AskOptions): AsyncGenerator<ListedLease, void, void> {
    let after: string | null = null;
    do {
      const params = {
        ...(prefix === undefined ? {} : { prefix }),
        ...(after === null ? {} : { after }),
      };
      const page: LeasesResult = await this.#ask("leases", params, options);
      yield* page.leases;
      after = page.next;
    } while (after !== null);
  }

  /** How the agent is. */
  status(options?: AskOptions): Promise<StatusResult> {
    return this.#ask("status", {}, options);
  }

  /**
   * Has the agent give leases up, and not acquire them for `forMs` (default: the TTL). The newest counts:
   * a shorter one shortens, 0 ends what was ordered before. For admin users. It lets grants finish
   * first, so the answer takes up to the agent's `--drain`: give a longer `timeoutMs` where that is more
   * than 90 s.
   */
  async stepdown(
    which: { readonly store: string } | { readonly all: true },
    options: AskOptions & { readonly forMs?: number } = {},
  ): Promise<StepdownResult> {
    const { forMs, signal, timeoutMs = STEPDOWN_MS } = options;
    signal?.throwIfAborted();
    checkMs({ forMs });
    const bounds = { signal, timeoutMs, sinceMs: performance.now() };
    // Not asked twice: what it did is not undone by the connection's end.
    const { connection } = await this.#link.dial(bounds);
    const params = { ...which, ...(forMs === undefined ? {} : { for_ms: forMs }) };
    return await connection.call("stepdown", params, bounds);
  }

  /**
   * Ends the client. Guards that run lose their grants: their tokens are refused and their signals abort,
   * and the programs of {@linkcode ZitCli.write} are ended, as when the lease is lost. Only when that is
   * done, and what was given to `guard` has returned or the deadline of its lease has passed, are the
   * grants given back and the connection closed. So a write that waits for this to end waits for itself,
   * until its deadline.
   *
   * Its views and watches end at once. A client that is not closed keeps its process from ending.
   */
  close(): Promise<void> {
    return this.#link.close();
  }

  /** Ends the client: for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** For what has connections of its own, which end with the client. */
  #watching(): WatchOptions {
    const { closing } = this.#link;
    closing.throwIfAborted();
    return { ...this.#options, closing };
  }

  async #ask<M extends Method>(
    method: M,
    params: Methods[M]["params"],
    { signal, timeoutMs = ANSWER_MS }: AskOptions = {},
  ): Promise<Methods[M]["result"]> {
    signal?.throwIfAborted();
    const bounds = { signal, timeoutMs, sinceMs: performance.now() };
    return await this.#link.use(
      ({ connection }) => connection.call(method, params, bounds),
      bounds,
    );
  }
}
