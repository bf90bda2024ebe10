/**
 * The coordinator an agent is run with: NATS, or none.
 * @module
 */
import { closeSync, constants, openSync, readSync } from "node:fs";
import type { Agent } from "../agent/agent.ts";
import type { NatsOptions as NatsRunOptions, RunOptions } from "../cli/run_options.ts";
import { MAX_LINE_BYTES, parseFence } from "../disk/fence.ts";
import { NatsCoordinator } from "../nats/coordinator.ts";
import type { Drift, NatsListener, Problem } from "../nats/listener.ts";
import type { CredentialFiles, ServerMemory } from "../nats/options.ts";
import { DEFAULT_TTL_MS } from "../lease/timing.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { Coordinator } from "../ports/coordinator.ts";
import type { Log } from "../service/log.ts";
import type { StatusResult } from "../socket/protocol.ts";
import { StandaloneCoordinator } from "../standalone/coordinator.ts";

/** A coordinator with what the daemon does with it besides. */
export interface Backend {
  readonly coordinator: Coordinator;
  facts(): StatusResult["coordinator"];
  warnings(): readonly Warning[];
  /** How far the coordinator's clock is ahead of ours, in milliseconds; null where nobody knows. */
  aheadMs(): number | null;
  /** Reads credentials again. */
  reload(): Promise<void>;
  stop(): Promise<void>;
}

/** What a person should know although writes can be guarded. */
export interface Warning {
  /** What it is about. */
  readonly check: string;
  readonly message: string;
}

/** Who waits for the coordinator. */
export interface BackendEvents {
  /** Called when the agent exists. */
  readonly agent: () => Agent;
  readonly log: Log;
  /** It was reached and its buckets fit. */
  onReached(): void;
  /** It could not be reached, this time. */
  onUnreachable(): void;
  /** It contradicts the setup. Before READY that ends the agent. */
  onFatal(problem: Problem): void;
}

/** What both kinds are told. */
export interface BackendOptions {
  readonly run: RunOptions;
  readonly incarnation: string;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly lockPath: (store: string) => string;
  readonly memory: ServerMemory;
}

/** Starts the coordinator that the options name. Events come later, never before this returns. */
export function startBackend(options: BackendOptions, events: BackendEvents): Backend {
  const { coordinator } = options.run;
  return coordinator.kind === "nats"
    ? startNats(options, coordinator, events)
    : startStandalone(options, coordinator.reason, events);
}

function startNats(
  { run, incarnation, clock, timers, memory }: BackendOptions,
  nats: NatsRunOptions,
  events: BackendEvents,
): Backend {
  const coordinator: NatsCoordinator = NatsCoordinator.start({
    urls: nats.urls,
    credentials: filesOf(nats),
    bucket: nats.bucket,
    replicas: nats.replicas ?? undefined,
    ttlMs: run.ttlMs ?? undefined,
    allowUnsafeServer: nats.allowUnsafeServer,
    memory,
    node: run.node,
    incarnation,
    address: run.address,
    clock,
    timers,
  }, natsListener(events, () => coordinator));
  return {
    coordinator,
    facts() {
      const { ready, server, version, rttMs } = coordinator.stats();
      return { connected: ready, server, version, rtt_ms: rttMs };
    },
    warnings: () => coordinator.warnings,
    aheadMs: () => coordinator.stats().aheadMs,
    reload: () => coordinator.reload(),
    stop: () => coordinator.stop(),
  };
}

function filesOf({ credentials, tls }: NatsRunOptions): CredentialFiles {
  return {
    creds: credentials.creds ?? undefined,
    nkey: credentials.nkey ?? undefined,
    user: credentials.user?.name,
    passwordFile: credentials.user?.passwordFile,
    tlsCa: tls.ca ?? undefined,
    tlsCert: tls.cert ?? undefined,
    tlsKey: tls.key ?? undefined,
  };
}

/** What ends a connection that did not fail. */
const CHANGING = "the connection is being made anew, with other credentials";

/** What there was not before. */
function newIn(now: readonly Warning[], before: readonly Warning[]): readonly Warning[] {
  return now.filter(({ message }) => before.every((other) => other.message !== message));
}

const REMADE =
  "The bucket of before is missing here, and another one is in its place: what was held in it is " +
  "lost to its holders, and whoever holds a store next owes a grace. Somebody deleted it, or the " +
  "nats-servers lost their data: find out which";

const FORGOTTEN =
  "Whether the buckets are those of before is not known, because the state directory is damaged: " +
  "whoever acquires a store that has no record owes a grace, for two TTLs";

function natsListener(
  { agent, log, onReached, onUnreachable, onFatal }: BackendEvents,
  coordinator: () => NatsCoordinator,
): NatsListener {
  let warned: readonly Warning[] = [];
  let told: object | null = null;
  /** The TTL that all deadlines go by: the bucket's, also while it is not the one that we were told. */
  const goBy = (ttlMs: number, drift: Drift | null) => {
    agent().setMisconfigured(drift?.message ?? null);
    // Holds end by a TTL that was made smaller, as their entries do; never later than they should.
    agent().setTtl(Math.min(ttlMs, drift?.ttlMs ?? Infinity));
  };
  return {
    onReady({ ttlMs, server, serverVersion, warnings, created }) {
      agent().setProblem(null);
      goBy(ttlMs, coordinator().drift);
      agent().health.report("server_version", null);
      // That it is back is told where it was missed.
      const facts = { server, version: serverVersion, ttl_ms: ttlMs };
      if (JSON.stringify(facts) !== JSON.stringify(told)) {
        log.event("info", "coordinator_ready", { check: "coordinator", ...facts });
      }
      told = facts;
      for (const { message, replicas } of created) {
        log.event(replicas === 1 ? "warn" : "info", "bucket_created", { message, replicas });
      }
      for (const { check, message } of newIn(warnings, warned)) {
        log.event("warn", "coordinator_warning", { check, message });
      }
      for (const { check, message } of newIn(warned, warnings)) {
        log.event("info", "coordinator_warning_over", { check, message });
      }
      warned = warnings;
      onReached();
    },
    onConnection(connected) {
      if (!connected) agent().setProblem(coordinator().problem?.message ?? CHANGING);
      agent().setConnected(connected);
    },
    onProblem(problem, news) {
      onUnreachable();
      if (!problem.fatal) return agent().setProblem(problem.message, news);
      const check = problem.check === "server_version" ? problem.check : "bucket";
      // Why is said once.
      agent().setProblem(`reached, but not used: see ${check}`);
      agent().setMisconfigured(problem.message, check);
      onFatal(problem);
    },
    onDrift(fault) {
      const { ttlMs } = coordinator();
      if (ttlMs !== null) goBy(ttlMs, fault);
    },
    onBuckets(seen, ttlBeforeMs) {
      if (seen === "others") log.event("warn", "bucket_remade", { message: REMADE });
      if (seen === "forgotten") log.event("warn", "bucket_forgotten", { message: FORGOTTEN });
      agent().onBuckets(seen, ttlBeforeMs);
    },
    onDenied(denied, news) {
      agent().health.report("permissions", denied?.message ?? null, news);
    },
    onTenure(store, record, revision) {
      agent().onTenure(store, record, revision);
    },
  };
}

const NO_COORDINATOR = "standalone: no coordinator keeps other hosts from writing";

function startStandalone(
  { run, incarnation, lockPath }: BackendOptions,
  reason: string,
  { agent, onReached }: BackendEvents,
): Backend {
  const { node, address } = run;
  const epochOnDisk = (store: string) => readEpoch(lockPath(store));
  queueMicrotask(() => {
    agent().setProblem(null);
    agent().setTtl(run.ttlMs ?? DEFAULT_TTL_MS);
    agent().setConnected(true);
    onReached();
  });
  return {
    coordinator: new StandaloneCoordinator({ node, incarnation, address, epochOnDisk }),
    facts: () => ({ connected: true, server: null, version: null, rtt_ms: null }),
    // Loud: whoever looks sees that nothing keeps other hosts from writing.
    warnings: () => [{ check: "unguarded", message: `unguarded: ${reason} (${NO_COORDINATOR})` }],
    aheadMs: () => null,
    reload: () => Promise.resolve(),
    stop: () => Promise.resolve(),
  };
}

/** The epoch in a lock file; 0 where there is none. Whether it may be used, locking it tells. */
function readEpoch(path: string): number {
  let fd: number | null = null;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const bytes = Buffer.alloc(MAX_LINE_BYTES);
    const length = readSync(fd, bytes, 0, bytes.length, 0);
    return parseFence(bytes.subarray(0, length))?.epoch ?? 0;
  } catch {
    return 0;
  } finally {
    if (fd !== null) closeSync(fd);
  }
}
