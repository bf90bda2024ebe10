/**
 * The client: what programs call.
 * @module
 */
import process from "node:process";
import type {
  HistoryResult,
  HolderResult,
  LeaseInfo,
  StatusResult,
  StepdownResult,
} from "../socket/protocol.ts";
import type { ConnectOptions } from "./connect.ts";
import type { LiveGrant } from "./grant.ts";
import type { Grants } from "./grants.ts";
import { HeldView } from "./held_view.ts";
import { Link } from "./link.ts";
import { defaultSocketPath } from "./socket_path.ts";
import { mintToken, type Token } from "./token.ts";
import { type Disconnected, type LeaseChange, watchStores } from "./watch.ts";

/** How to guard a write. */
export interface GuardOptions {
  /** How long to wait for the turn, the lock and the end of a grace. Default 0. */
  readonly waitMs?: number;
  /** Whether to wait, too, while another node holds the lease. Default false. */
  readonly waitLease?: boolean;
  /** Whether it may overlap other shared guards, for writers that take turns by themselves. */
  readonly shared?: boolean;
  /**
   * Path of the agent's executable, or its name in PATH. With it the lock on disk passes to what
   * {@linkcode ZitCli.write} runs under the token, and stays with that until it ends, also when the
   * agent and this process are killed. Default: the lock is the agent's alone, and goes with it.
   */
  readonly passLock?: string;
  /** What the write is for; shown to people. */
  readonly purpose?: string;
  /** Ends the wait, and then the write: it aborts the token's signal. */
  readonly signal?: AbortSignal;
}

/** Stores of one question: 10,000 are allowed, and 5,000 codes of any length fit in 1 MiB. */
const HELD_AT_ONCE = 5_000;

/**
 * Connects to the agent. Later the client connects again by itself when the agent was restarted.
 *
 * @throws {AgentUnreachable} if nobody listens on the socket, or not in time.
 * @throws {InvalidError} if no socket was given and the environment names none.
 */
export async function connect(options: ConnectOptions = {}): Promise<Client> {
  const client = new Client(options);
  await client.reach();
  return client;
}

/** A client of the agent of this host. */
export class Client {
  /** The path of the agent's socket. */
  readonly socket: string;
  readonly #options: ConnectOptions & { readonly socket: string };
  readonly #link: Link;

  /** Makes a client that connects when it is first used; {@linkcode connect} does so at once. */
  constructor(options: ConnectOptions = {}) {
    this.socket = options.socket ?? defaultSocketPath(process.env, process.getuid?.() ?? 0);
    this.#options = { ...options, socket: this.socket };
    this.#link = new Link(this.#options);
  }

  /** Connects, unless connected. */
  async reach(): Promise<void> {
    await this.#link.dial();
  }

  /**
   * Runs `write` while this node may write to the store, and resolves with its result. What it needs
   * for a writing call is the token, which is refused once `write` has ended.
   *
   * @throws {NotHolderError} another node holds the store: `holder` says where to send the write.
   * @throws {BusyError} the turn did not come within `waitMs`; GraceError, DrainingError, LimitError
   * likewise pass.
   * @throws {UnavailableError} the agent or the coordinator cannot be reached.
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
    { waitMs, waitLease, shared, passLock, purpose, signal }: GuardOptions,
  ): Promise<{ on: Grants; grant: LiveGrant }> {
    signal?.throwIfAborted();
    // The protocol's optional members are left out, not null.
    const params = {
      store,
      wait_ms: waitMs ?? 0,
      wait_lease: waitLease ?? false,
      shared: shared ?? false,
      pass_lock: passLock !== undefined,
      ...(purpose === undefined ? {} : { purpose }),
    };
    const granted = await this.#link.use(
      async (on) => ({ on, grant: await on.ask(params, { signal, passLock }) }),
      signal,
    );
    if (signal?.aborted) {
      await granted.on.end(granted.grant).catch(() => {});
      throw signal.reason;
    }
    return granted;
  }

  /** Whether this node may write to the store now, from the agent's memory. It is no permission. */
  held(store: string): Promise<boolean>;
  /** The same for many stores. */
  held(stores: readonly string[]): Promise<Map<string, boolean>>;
  async held(asked: string | readonly string[]): Promise<boolean | Map<string, boolean>> {
    if (typeof asked === "string") {
      return await this.#link.use(async ({ connection }) =>
        (await connection.call("held", { store: asked })).held as boolean
      );
    }
    const all = new Map<string, boolean>();
    for (let i = 0; i < asked.length; i += HELD_AT_ONCE) {
      const stores = asked.slice(i, i + HELD_AT_ONCE);
      const { held } = await this.#link.use(({ connection }) =>
        connection.call("held", { stores })
      );
      for (const [store, is] of Object.entries(held)) all.set(store, is);
    }
    return all;
  }

  /**
   * A local view of which stores are held, kept by a watch, to be asked without a round trip: for
   * schedulers. The stores, if named, are wanted while it lasts; without, it shows those that the
   * agent knows for other reasons. `await view.ready` before the first tick.
   *
   * @throws {InvalidError} if a store's code is none.
   */
  heldView(stores?: readonly string[]): HeldView {
    return new HeldView(this.#options, stores ?? null);
  }

  /** Who holds the store, as the coordinator tells. */
  holder(store: string): Promise<HolderResult> {
    return this.#link.use(({ connection }) => connection.call("holder", { store }));
  }

  /**
   * The present state of the stores (of all that the agent knows, for null), then each change, over
   * restarts of the agent, until the loop is left or the signal aborts.
   */
  watch(
    stores: readonly string[] | null,
    options: { readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<LeaseChange | Disconnected, void, void> {
    return watchStores(this.#options, stores, options.signal);
  }

  /** Who held the store, newest first. */
  async history(store: string): Promise<HistoryResult["tenures"]> {
    const { tenures } = await this.#link.use(({ connection }) =>
      connection.call("history", { store })
    );
    return tenures;
  }

  /** What the agent holds or follows, sorted by store. */
  async *leases(prefix?: string): AsyncGenerator<LeaseInfo, void, void> {
    let after: string | null = null;
    do {
      const params = {
        ...(prefix === undefined ? {} : { prefix }),
        ...(after === null ? {} : { after }),
      };
      const page: { leases: readonly LeaseInfo[]; next: string | null } = await this.#link.use(
        ({ connection }) => connection.call("leases", params),
      );
      yield* page.leases;
      after = page.next;
    } while (after !== null);
  }

  /** How the agent is. */
  status(): Promise<StatusResult> {
    return this.#link.use(({ connection }) => connection.call("status", {}));
  }

  /** Has the agent give leases up, and not acquire them for a while. For admin users. */
  stepdown(
    which: { readonly store: string } | { readonly all: true },
    options: { readonly forMs?: number } = {},
  ): Promise<StepdownResult> {
    const forMs = options.forMs === undefined ? {} : { for_ms: options.forMs };
    // Not asked twice: what it did is not undone by the connection's end.
    return this.#link.dial().then(({ connection }) =>
      connection.call("stepdown", { ...which, ...forMs })
    );
  }

  /** Ends the client: guards that run lose their grants. Views and watches have their own ends. */
  close(): Promise<void> {
    return this.#link.close();
  }

  /** Ends the client: for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
