/**
 * Running the `zit` executable: reads for anybody, writes with a token.
 * @module
 */
import process from "node:process";
import { isStoreCode } from "../lease/store_code.ts";
import { InvalidError } from "./errors.ts";
import { checkDirectory, fromHere } from "./executable.ts";
import { type Ended, Leash } from "./leash.ts";
import { onAbort } from "./signals.ts";
import { type Genuine, type Grant, grantOf, type Token } from "./token.ts";
import { Watchdog } from "./watchdog.ts";

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
  /**
   * Path of the executable (from the working directory of this process), or its name in PATH. Default
   * `zit`.
   */
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
  /** What the outputs are returned as: `text`, decoded as UTF-8, or the `bytes` as they are. Default text. */
  readonly output?: "text" | "bytes";
}

/** Options that ask for bytes. */
export type BytesOptions = RunOptions & { readonly output: "bytes" };

/** How a command ended: `status` is null if a signal ended it. */
export interface RunResult<T extends string | Uint8Array = string> {
  readonly status: number | null;
  readonly signal: string | null;
  readonly stdout: T;
  readonly stderr: T;
}

/** The `zit` executable. */
export class ZitCli<R extends string = typeof READS[number]> {
  readonly #options: ZitCliOptions<R>;
  readonly #executable: string;
  readonly #reads: ReadonlySet<string>;

  constructor(options: ZitCliOptions<R> = {}) {
    this.#options = options;
    this.#executable = fromHere(options.executable ?? "zit");
    this.#reads = new Set<string>(options.reads ?? READS);
  }

  /**
   * Runs a command that only reads.
   *
   * @throws {InvalidError} if the command is not known to only read, or `store` is no store code.
   * {@linkcode MisconfiguredError} if the executable or the store's directory is not there.
   */
  read(
    store: string,
    command: R,
    args: readonly string[],
    options: BytesOptions,
  ): Promise<RunResult<Uint8Array>>;
  read(
    store: string,
    command: R,
    args?: readonly string[],
    options?: RunOptions,
  ): Promise<RunResult>;
  async read(
    store: string,
    command: R,
    args: readonly string[] = [],
    options: RunOptions = {},
  ): Promise<RunResult | RunResult<Uint8Array>> {
    checkStore(store);
    options.signal?.throwIfAborted();
    if (!this.#reads.has(command)) {
      throw new InvalidError(
        `Cannot run "${command}" on ${store} as a read: it may write; use write(), with a token`,
      );
    }
    const cwd = this.#directoryOf(store);
    const leash = this.#start(store, [command, ...args], { ...options, cwd }, null);
    return resultOf(await untilEnd(leash, [options.signal], () => Infinity), options);
  }

  /**
   * Runs a command that writes. The lease is confirmed right before; while it runs, the command is
   * ended when the lease is in danger, and with it all that it started in its process group. What it
   * leaves behind in that is ended with the guard. It does not outlive this process either.
   *
   * @throws {NoTokenError} if the token is forged, copied, another store's, or its guard has ended;
   * nothing was run then. {@linkcode LostError} if the lease went, before or while it ran.
   * {@linkcode UnavailableError} if the coordinator does not confirm; nothing was run then.
   * {@linkcode MisconfiguredError} if `/bin/sh` cannot be run, `passLock` names no agent, or the executable or
   * the store's directory is not there; nothing was run then.
   */
  write<T extends Token>(
    token: Genuine<T>,
    store: string,
    args: readonly string[],
    options: BytesOptions,
  ): Promise<RunResult<Uint8Array>>;
  write<T extends Token>(
    token: Genuine<T>,
    store: string,
    args: readonly string[],
    options?: RunOptions,
  ): Promise<RunResult>;
  async write<T extends Token>(
    token: Genuine<T>,
    store: string,
    args: readonly string[],
    options: RunOptions = {},
  ): Promise<RunResult | RunResult<Uint8Array>> {
    checkStore(store);
    const grant = grantOf(token, store);
    const signals = [grant.signal, options.signal];
    for (const signal of signals) signal?.throwIfAborted();
    const cwd = this.#directoryOf(store);
    const watchdog = await Watchdog.start();
    let leash: Leash;
    try {
      await confirm(grant, signals);
      grantOf(token, store); // its guard may have ended, and given the grant back, in between
      leash = this.#start(store, args, { ...options, cwd }, { grant, watchdog });
    } catch (error) {
      watchdog.dismiss();
      throw error;
    }
    grant.keep(leash);
    const ended = await untilEnd(leash, signals, () => grant.msToDeadline);
    grantOf(token, store); // lost meanwhile, or its guard did not wait for us: told in any case
    return resultOf(ended, options);
  }

  get #killAfterMs(): number {
    return this.#options.killAfterMs ?? DEFAULT_KILL_AFTER_MS;
  }

  /** Where to run; undefined for the working directory of this process. */
  #directoryOf(store: string): string | undefined {
    const directory = this.#options.directory?.(store);
    if (directory !== undefined) checkDirectory(directory, store);
    return directory;
  }

  #start(
    store: string,
    args: readonly string[],
    { input, cwd }: RunOptions & { readonly cwd: string | undefined },
    under: { readonly grant: Grant; readonly watchdog: Watchdog } | null,
  ): Leash {
    const { prefix, env = process.env } = this.#options;
    const outside = Object.entries(env).filter(([name, value]) =>
      value !== undefined && !OURS.test(name)
    ) as [string, string][];
    return new Leash({
      executable: this.#executable,
      args: [...prefix?.(store) ?? [], ...args],
      cwd,
      env: { ...Object.fromEntries(outside), ...under?.grant.environment() },
      input,
      watchdog: under?.watchdog ?? null,
      lockPasser: under?.grant.lockPasser ?? null,
      killAfterMs: this.#killAfterMs,
    });
  }
}

/** Confirms the grant; throws, too, if one of the signals aborts before that is done. */
async function confirm(
  grant: Grant,
  signals: readonly (AbortSignal | undefined)[],
): Promise<void> {
  const giveUp = new AbortController();
  const stopListening = onAbort(signals, (reason) => giveUp.abort(reason));
  try {
    await grant.verify({ signal: giveUp.signal });
    // Aborted while it was confirmed: by now an abort would find nothing to end.
    giveUp.signal.throwIfAborted();
  } finally {
    stopListening();
  }
}

/** Waits for the end, which comes soon once one of the signals aborts; then that is thrown. */
async function untilEnd(
  leash: Leash,
  signals: readonly (AbortSignal | undefined)[],
  /** To the deadline of the lease, at which nothing may be left. */
  msLeft: () => number,
): Promise<Ended> {
  let stopped: { readonly reason: unknown } | null = null;
  const stopListening = onAbort(signals, (reason) => {
    stopped = { reason };
    void leash.end(msLeft);
  });
  // What kept it from running says less than what ended it meanwhile.
  const ended = await leash.ended.catch((error) => ({ error }));
  stopListening();
  if (stopped !== null) {
    await leash.end(msLeft);
    throw (stopped as { readonly reason: unknown }).reason;
  }
  if ("error" in ended) throw ended.error;
  return ended;
}

function resultOf(
  { stdout, stderr, ...how }: Ended,
  { output = "text" }: RunOptions,
): RunResult | RunResult<Uint8Array> {
  if (output === "bytes") return { ...how, stdout, stderr };
  const text = (bytes: Uint8Array) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  return { ...how, stdout: text(stdout), stderr: text(stderr) };
}

function checkStore(store: string): void {
  if (isStoreCode(store)) return;
  throw new InvalidError(`Cannot run zit for ${JSON.stringify(store)}: it is no store code`);
}
