/**
 * The daemon: builds the adapters, joins them to the agent, and lives until it is told to stop.
 * @module
 */
import { randomBytes } from "node:crypto";
import { Agent } from "../agent/agent.ts";
import { probeLock } from "../agent/lock_probe.ts";
import type { RunOptions } from "../cli/run_options.ts";
import { BootClock, SystemTimers } from "../disk/boot_clock.ts";
import { FlockLockFiles } from "../disk/lock_files.ts";
import { lockHeirs } from "../disk/lock_owners.ts";
import { StateDir, StateDirError } from "../disk/state_dir.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { LockFiles } from "../ports/lock_file.ts";
import { SetupError } from "../nats/setup_error.ts";
import { isJournal, type Log, openLog } from "../service/log.ts";
import { QuietLog } from "../service/quiet_log.ts";
import { SocketError } from "../socket/path_checks.ts";
import { EXIT_CONFIG } from "../sys/exit.ts";
import { setDescriptorLimit } from "../sys/process.ts";
import { VERSION } from "../version.ts";
import { type Backend, startBackend, type Warning } from "./coordinators.ts";
import { Lifetime } from "./lifetime.ts";
import { Inherited } from "./inherited.ts";
import { Leftovers } from "./leftovers.ts";
import { StateMemory } from "./memory.ts";
import { LogObserver } from "./observer.ts";
import { descriptorWarning, lockLimit, tooFewDescriptors } from "../socket/limits.ts";
import type { StatusResult } from "../socket/protocol.ts";
import type { Monitoring } from "./monitoring.ts";
import { seenProcesses } from "./seen.ts";
import { openSocket, type Surface } from "./surface.ts";
import { statusOf } from "./status.ts";
import { readStoresFile } from "./stores_file.ts";
import { tokenSource } from "./tokens.ts";

/**
 * Runs the agent until it is told to stop.
 *
 * @returns the exit status: 0 after a clean stop, 73 when socket or state directory cannot be used,
 * 78 when the setup is contradicted.
 */
export async function startAgent(options: RunOptions): Promise<number> {
  const log = new QuietLog(openLog({ ...options.log, journal: isJournal(process.env) }));
  try {
    return await run(options, log);
  } catch (error) {
    return failed(error, log);
  } finally {
    log.close();
  }
}

/** Logs what the agent cannot run with, and returns its exit status; a fault is thrown on. */
function failed(error: unknown, log: Log): number {
  const exit = exitOf(error);
  if (exit === null) throw error;
  log.event("error", "failed", { message: (error as Error).message, exit });
  return exit;
}

function exitOf(error: unknown): number | null {
  if (error instanceof StateDirError) return error.exit;
  if (error instanceof StoresFileError || error instanceof LimitError) return EXIT_CONFIG;
  // By name: the class is in a module that is loaded only where it is needed.
  const known = error instanceof SocketError || error instanceof SetupError ||
    (error as Error).name === "HttpError";
  return known ? (error as SocketError).exit : null;
}

class StoresFileError extends Error {}

class LimitError extends Error {}

async function run(options: RunOptions, log: Log): Promise<number> {
  const incarnation = randomBytes(12).toString("hex");
  const { node } = options;
  // Every descriptor that the system allows us: connections and locks need one each.
  const descriptors = setDescriptorLimit(Infinity).soft;
  const tooFew = tooFewDescriptors(descriptors);
  if (tooFew !== null) throw new LimitError(tooFew);
  const stores = options.storesFile === null ? null : pinnedOf(options.storesFile);
  const clock = new BootClock();
  const timers = new SystemTimers();
  const locks = new FlockLockFiles(options.lockPath, { clock, timers });
  const isLocked = (store: string) => probeLock(locks, store)?.kind === "busy";
  const state = StateDir.open(options.stateDir, { incarnation, node, isLocked });
  for (const message of options.warnings) log.event("warn", "settings", { message });
  for (const damage of state.damage) log.event("warn", "state_damaged", { message: damage });
  const parts = join(options, { incarnation, state, descriptors, log, clock, timers, locks });
  log.event("info", "started", {
    version: VERSION,
    node,
    incarnation,
    pid: process.pid,
    ...(options.coordinator.kind === "standalone"
      ? { unguarded: options.coordinator.reason }
      : { nats: options.coordinator.urls }),
  });
  const few = descriptorWarning(options.limits, descriptors);
  if (few !== null) log.event("warn", "few_descriptors", { message: few });
  // Before all others: the entries of the last agent do not wait. What writes in these stores is ended
  // by nobody any more if it was left by a guard that was killed: then only our renewals protect it.
  parts.agent.asking.want(state.journal.unfinished);
  if (stores !== null) parts.agent.setPinned(stores);
  const { lifetime } = parts;
  const onHangUp = () => void lifetime.reload(() => reload(options, parts, log));
  process.on("SIGHUP", onHangUp);
  let monitoring: Monitoring | null = null;
  try {
    monitoring = await monitor(options, parts, log);
    await parts.surface.listen(options.socketPath, lifetime.settled);
    return await lifetime.run();
  } catch (error) {
    return failed(error, log); // before it is said below that we stopped
  } finally {
    process.off("SIGHUP", onHangUp);
    parts.agent.health.close();
    // First of all: the connections that end below end their grants, and a lease whose grant did not
    // finish must not be released for that, but age out.
    await parts.backend.stop();
    await parts.surface.stop();
    await monitoring?.stop();
    parts.agent.close();
    parts.leftovers.close();
    parts.inherited.close();
    parts.observer.close();
    state.close();
    lifetime.close();
    log.event("info", "stopped", { node });
  }
}

interface Parts {
  readonly agent: Agent;
  readonly backend: Backend;
  readonly surface: Surface;
  readonly lifetime: Lifetime;
  readonly observer: LogObserver;
  readonly leftovers: Leftovers;
  readonly inherited: Inherited;
  readonly status: () => StatusResult;
  /** Why the last reload could not read the stores, until one can. */
  readonly storesFault: { now: Warning | null };
}

/** Serves metrics and health where asked to; else their code is not even loaded. */
async function monitor(
  { httpAddress }: RunOptions,
  { agent, backend, observer, status }: Parts,
  log: Log,
): Promise<Monitoring | null> {
  if (httpAddress === null) return null;
  const { startMonitoring } = await import("./monitoring.ts");
  const monitoring = await startMonitoring({
    address: httpAddress,
    agent,
    status,
    coordinatorUp: () => backend.facts().connected,
  });
  observer.also = monitoring.observer;
  log.event("info", "monitoring", { http: httpAddress, port: monitoring.port });
  return monitoring;
}

/** What the parts are made of. */
interface Made {
  readonly incarnation: string;
  readonly state: StateDir;
  readonly descriptors: number;
  readonly log: Log;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly locks: LockFiles;
}

/** Joins agent, coordinator and socket: each knows the others only by what it is handed here. */
function join(
  options: RunOptions,
  made: Made,
): Parts {
  const { incarnation, log, clock, timers, locks } = made;
  const memory = new StateMemory(made.state, incarnation);
  const observer = new LogObserver(log);
  // Assigned below; nobody asks before events can come.
  let agent: Agent | null = null;
  const isOut = (token: string) => agent!.lockOf(token) !== null;
  const heirs = (paths: readonly string[]) => lockHeirs(paths, process.pid);
  const processes = seenProcesses;
  const leftovers = new Leftovers({ clock, timers, locks, log, isOut, processes, heirs });
  const inherited = new Inherited(made.state.journal, { clock, timers });
  const lifetime = new Lifetime({
    agent: () => agent!,
    log,
    coordinator: () => coordinatorLine(options, backend.facts()),
  });
  const backend = startBackend(
    { run: options, incarnation, clock, timers, memory, lockPath: (store) => locks.path(store) },
    {
      agent: () => agent!,
      log,
      onReached: () => {
        if (agent!.timing !== null) inherited.onTtl(agent!.timing.ttlMs);
        lifetime.onReached();
      },
      onUnreachable: () => lifetime.onUnreachable(),
      onFatal: (problem) => lifetime.onFatal(problem),
    },
  );
  agent = new Agent({
    node: options.node,
    incarnation,
    address: options.address,
    ttlMs: options.ttlMs ?? undefined,
    graceMs: options.graceMs ?? undefined,
    interestMs: options.interestMs,
    drainMs: options.drainMs,
    maxWaiters: options.limits.maxWaiters,
    maxGrants: options.limits.maxGrants,
    maxLocks: lockLimit(made.descriptors),
    standalone: options.coordinator.kind === "standalone" ? options.coordinator.reason : null,
  }, {
    clock,
    timers,
    coordinator: backend.coordinator,
    locks,
    memory,
    newToken: tokenSource(),
    observer,
    onLeft: (left) => leftovers.expect(left),
  });
  const startedMs = clock.bootMs();
  const storesFault: Parts["storesFault"] = { now: null };
  const status = () =>
    statusOf({
      agent: agent!,
      memory,
      lockPath: options.lockPath,
      startedMs,
      nowMs: () => clock.bootMs(),
      coordinator: () => backend.facts(),
      aheadMs: () => backend.aheadMs(),
      warnings: () => [...backend.warnings(), ...storesFault.now === null ? [] : [storesFault.now]],
      connections: () => surface.connections,
    });
  const { descriptors } = made;
  const surface: Surface = openSocket(agent, { options, memory, log, descriptors, status });
  return { agent, backend, surface, lifetime, observer, leftovers, inherited, status, storesFault };
}

function pinnedOf(path: string): Set<string> {
  try {
    return readStoresFile(path);
  } catch (error) {
    throw new StoresFileError((error as Error).message);
  }
}

/** The coordinator for systemd's status line. */
function coordinatorLine(
  { coordinator }: RunOptions,
  { connected, server }: ReturnType<Backend["facts"]>,
): string {
  if (coordinator.kind === "standalone") return `standalone (${coordinator.reason})`;
  return connected ? `coordinator ${server}` : "coordinator not reachable: all writes are refused";
}

/**
 * SIGHUP: credentials and the stores file again, each for itself; what cannot be read leaves the old
 * in force.
 */
async function reload(options: RunOptions, parts: Parts, log: Log): Promise<void> {
  const { agent, backend, storesFault } = parts;
  const { storesFile } = options;
  const attempt = async (what: string, act: () => void | Promise<void>) => {
    try {
      await act();
      return null;
    } catch (error) {
      const { message } = error as Error;
      log.event("error", "reload_failed", { what, message });
      return message;
    }
  };
  const stores = storesFile === null
    ? null
    : await attempt("stores", () => agent.setPinned(readStoresFile(storesFile)));
  storesFault.now = stores === null
    ? null
    : { check: "reload", message: `the last reload failed: ${stores}` };
  // What is wrong with these the coordinator warns of, for as long as that is so.
  const credentials = await attempt("credentials", () => backend.reload());
  if (stores === null && credentials === null) log.event("info", "reloaded");
}
