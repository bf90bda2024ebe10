/**
 * Running the `zit` executable: reads for anybody, writes with a token.
 * @module
 */
import process from "node:process";
import { isStoreCode } from "../lease/store_code.ts";
import { InvalidError } from "./errors.ts";
import { type Ended, Leash } from "./leash.ts";
import { type Genuine, grantOf, type Token } from "./token.ts";

/** Commands of `zit` that only read, unless the options name others. */
const READS = [
  "cat",
  "diff",
  "help",
  "info",
  "ls",
  "log",
  "status",
  "timeline",
  "version",
] as const;

/** How long a program has to end by itself when its lease is lost, unless its deadline is sooner. */
const DEFAULT_KILL_AFTER_MS = 5_000;

/**
 * What a guard sets: none of it is passed on to a program that is not under that guard. But marks of
 * the guards around us are, because the program does not outlive these either.
 */
const OURS = /^ZIT_LEASE_(?!GUARDS$)/;

/** How `zit` is run. `R` are the commands that only read. */
export interface ZitCliOptions<R extends string = typeof READS[number]> {
  /** The executable: a path, or a name looked up in PATH. Default `zit`. */
  readonly executable?: string;
  /** Where the commands of a store are run. Default: the working directory of this process. */
  readonly directory?: (store: string) => string;
  /** Arguments before the command, such as those that name the repository. Default: none. */
  readonly prefix?: (store: string) => readonly string[];
  /** The commands that only read: all others need a token. */
  readonly reads?: readonly R[];
  /** The environment; default that of this process. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** How long a program has to end when its lease is lost, in ms; default 5,000. */
  readonly killAfterMs?: number;
}

/** How to run one command. */
export interface RunOptions {
  /** What it reads from its standard input; default: nothing. */
  readonly input?: string | Uint8Array;
  /** Ends the program: SIGTERM, and SIGKILL when it does not heed that. */
  readonly signal?: AbortSignal;
}

/** How a command ended: `status` is null if a signal ended it. */
export type RunResult = Ended;

/** The `zit` executable. */
export class ZitCli<R extends string = typeof READS[number]> {
  readonly #options: ZitCliOptions<R>;
  readonly #reads: ReadonlySet<string>;

  constructor(options: ZitCliOptions<R> = {}) {
    this.#options = options;
    this.#reads = new Set<string>(options.reads ?? READS);
  }

  /**
   * Runs a command that only reads.
   *
   * @throws {InvalidError} if the command is not known to only read, or `store` is no store code.
   */
  async read(
    store: string,
    command: R,
    args: readonly string[] = [],
    options: RunOptions = {},
  ): Promise<RunResult> {
    checkStore(store);
    if (!this.#reads.has(command)) {
      throw new InvalidError(
        `Cannot run "${command}" on ${store} as a read: it may write; use write(), with a token`,
      );
    }
    const leash = this.#start(store, [command, ...args], {
      ...options,
      lease: {},
      watched: false,
      lockPasser: null,
    });
    return await untilEnd(leash, { signals: [options.signal], killAfterMs: this.#killAfterMs });
  }

  /**
   * Runs a command that writes. The lease is confirmed right before; while it runs, the command is
   * ended when the lease is in danger, and with it all that it started in its process group. It does
   * not outlive this process either.
   *
   * @throws {NoTokenError} if the token is forged, copied, another store's, or its guard has ended;
   * nothing was run then. {@linkcode LostError} if the lease went, before or while it ran.
   * {@linkcode UnavailableError} if the coordinator does not confirm; nothing was run then.
   */
  async write<T extends Token>(
    token: Genuine<T>,
    store: string,
    args: readonly string[],
    options: RunOptions = {},
  ): Promise<RunResult> {
    checkStore(store);
    const grant = grantOf(token, store);
    options.signal?.throwIfAborted();
    grant.signal.throwIfAborted();
    await grant.verify({ signal: options.signal });
    // Aborted while it was confirmed: by now an abort would find nothing to end.
    options.signal?.throwIfAborted();
    grant.signal.throwIfAborted();
    const leash = this.#start(store, args, {
      ...options,
      lease: grant.environment(),
      watched: true,
      lockPasser: grant.lockPasser,
    });
    const ended = await untilEnd(leash, {
      signals: [grant.signal, options.signal],
      killAfterMs: this.#killAfterMs,
      msToDeadline: () => grant.msToDeadline,
    });
    grantOf(token, store); // lost meanwhile, or its guard did not wait for us: told in any case
    return ended;
  }

  get #killAfterMs(): number {
    return this.#options.killAfterMs ?? DEFAULT_KILL_AFTER_MS;
  }

  #start(
    store: string,
    args: readonly string[],
    run: RunOptions & {
      readonly lease: Record<string, string>;
      readonly watched: boolean;
      readonly lockPasser: string | null;
    },
  ): Leash {
    const { executable = "zit", directory, prefix, env = process.env } = this.#options;
    const outside = Object.entries(env).filter(([name, value]) =>
      value !== undefined && !OURS.test(name)
    ) as [string, string][];
    return new Leash({
      executable,
      args: [...prefix?.(store) ?? [], ...args],
      cwd: directory?.(store),
      env: { ...Object.fromEntries(outside), ...run.lease },
      input: run.input,
      watched: run.watched,
      lockPasser: run.lockPasser,
    });
  }
}

/** Waits for the end, which comes soon once one of the signals aborts; then that is thrown. */
async function untilEnd(leash: Leash, { signals, killAfterMs, msToDeadline = () => Infinity }: {
  readonly signals: readonly (AbortSignal | undefined)[];
  readonly killAfterMs: number;
  /** To the deadline of the lease, at which nothing may be left. */
  readonly msToDeadline?: () => number;
}): Promise<Ended> {
  const given = signals.filter((signal) => signal !== undefined);
  const any = AbortSignal.any(given);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stop = () => {
    leash.signal("SIGTERM");
    timer = setTimeout(() => leash.signal("SIGKILL"), Math.min(killAfterMs, msToDeadline()));
  };
  any.addEventListener("abort", stop, { once: true });
  if (any.aborted) stop();
  try {
    const ended = await leash.ended;
    if (!any.aborted) return ended;
    // What the program left behind in its group.
    leash.signal("SIGKILL");
    throw any.reason;
  } finally {
    clearTimeout(timer);
    any.removeEventListener("abort", stop);
  }
}

function checkStore(store: string): void {
  if (isStoreCode(store)) return;
  throw new InvalidError(`Cannot run zit for ${JSON.stringify(store)}: it is no store code`);
}
