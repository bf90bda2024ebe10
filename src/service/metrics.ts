/**
 * The agent's metrics, for Prometheus. Loaded only where somebody asked for them (`--http`).
 * @module
 */
import { readdirSync, readFileSync } from "node:fs";
import { processStartTime } from "../sys/proc.ts";
import { Counter, Gauge, Histogram, Registry } from "./prometheus.ts";

/** What is read when the metrics are. */
export interface MetricSources {
  readonly version: string;
  readonly node: string;
  /** What a guard can come to: `granted`, and the kinds of refusals. */
  readonly outcomes: readonly string[];
  /** Why a lease can be lost. */
  readonly lossReasons: readonly string[];
  readonly now: () => {
    readonly held: number;
    readonly grants: number;
    readonly waiters: number;
    readonly coordinatorUp: boolean;
    readonly renewOverdueMs: number;
    /** The checks of `--check`. */
    readonly checks: readonly { readonly name: string; readonly ok: boolean }[];
  };
}

/** From a guard of a held store on a fast disk and network to one that waited a long drain. */
const GUARD_BUCKETS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10, 30, 120];

/** A write to the coordinator is given up on after 1.5 s. */
const RENEW_BUCKETS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5];

/** Clock ticks a second in /proc, on every architecture that Bun runs on. */
const TICKS_PER_SECOND = 100;

/** Counts what happens, and writes it in Prometheus' text format. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #guards: Counter<"outcome">;
  readonly #guardSeconds: Histogram;
  readonly #renewSeconds: Histogram;
  readonly #lost: Counter<"reason">;
  readonly #unguarded: Counter;
  readonly #sources: MetricSources;
  #now: ReturnType<MetricSources["now"]>;

  constructor(sources: MetricSources) {
    this.#sources = sources;
    this.#now = sources.now();
    const registers = [this.#registry];
    this.#guards = new Counter({
      name: "zit_agent_guard_total",
      help: "Guards answered, by outcome: granted, or the kind of the refusal",
      labelNames: ["outcome"],
      registers,
    });
    this.#guardSeconds = new Histogram({
      name: "zit_agent_guard_seconds",
      help: "Time from a guard to its grant, waiting included",
      buckets: GUARD_BUCKETS_S,
      registers,
    });
    this.#renewSeconds = new Histogram({
      name: "zit_agent_renew_seconds",
      help: "Time until the coordinator acknowledged a renewal or a commit-point check",
      buckets: RENEW_BUCKETS_S,
      registers,
    });
    this.#lost = new Counter({
      name: "zit_agent_lost_total",
      help: "Leases lost against our will, by reason",
      labelNames: ["reason"],
      registers,
    });
    this.#unguarded = new Counter({
      name: "zit_agent_unguarded_total",
      help: "Grants without a coordinator behind them (--standalone)",
      registers,
    });
    // A series that appears only with its first event has no rate when it matters.
    for (const outcome of sources.outcomes) this.#guards.inc({ outcome }, 0);
    for (const reason of sources.lossReasons) this.#lost.inc({ reason }, 0);
    this.#addGauges();
    this.#addProcess();
  }

  /** A guard was answered after so long. */
  guarded(outcome: string, tookMs: number, unguarded: boolean): void {
    this.#guards.inc({ outcome });
    if (outcome !== "granted") return;
    this.#guardSeconds.observe(tookMs / 1_000);
    if (unguarded) this.#unguarded.inc();
  }

  /** A write was acknowledged after so long. */
  renewed(tookMs: number): void {
    this.#renewSeconds.observe(tookMs / 1_000);
  }

  /** A lease was lost. */
  lost(reason: string): void {
    this.#lost.inc({ reason });
  }

  /** All of it, in the text format. */
  text(): Promise<string> {
    // Once for all gauges: they count every store.
    this.#now = this.#sources.now();
    return this.#registry.metrics();
  }

  /** The content type of {@linkcode text}. */
  get contentType(): string {
    return this.#registry.contentType;
  }

  #addGauges(): void {
    const { version, node } = this.#sources;
    this.#gauge("zit_agent_leases_held", "Stores this node may write now", () => this.#now.held);
    this.#gauge(
      "zit_agent_grants_active",
      "Grants that their clients hold",
      () => this.#now.grants,
    );
    this.#gauge("zit_agent_waiters", "Guards that wait", () => this.#now.waiters);
    this.#gauge(
      "zit_agent_coordinator_up",
      "1 while the coordinator can be used, 0 while all writes are refused",
      () => Number(this.#now.coordinatorUp),
    );
    this.#gauge(
      "zit_agent_renew_overdue_seconds",
      "How long ago the renewal was due that has waited longest for its acknowledgement",
      () => this.#now.renewOverdueMs / 1_000,
    );
    this.#addChecks();
    const info = new Gauge({
      name: "zit_agent_build_info",
      help: "1; the labels tell what runs",
      labelNames: ["version", "bun", "node"],
      registers: [this.#registry],
    });
    info.set({ version, bun: Bun.version, node }, 1);
  }

  /** What `--check` says: a state, which shows whether or not anybody asks for a guard. */
  #addChecks(): void {
    const now = () => this.#now.checks;
    new Gauge({
      name: "zit_agent_check_failing",
      help: "1 while the check of `agent --check` fails, else 0",
      labelNames: ["check"],
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const { name, ok } of now()) this.set({ check: name }, Number(!ok));
      },
    });
  }

  /** The usual names, by the kernel's figures: the runtime's own heap figures mislead under Bun. */
  #addProcess(): void {
    this.#gauge("process_start_time_seconds", "When the process started", startTimeSeconds);
    this.#gauge(
      "process_resident_memory_bytes",
      "Resident memory",
      () => process.memoryUsage.rss(),
    );
    this.#gauge("process_open_fds", "Open descriptors", () => readdirSync("/proc/self/fd").length);
    this.#gauge("process_max_fds", "How many descriptors may be open", maxDescriptors);
    new Counter({
      name: "process_cpu_seconds_total",
      help: "Processor time used",
      registers: [this.#registry],
      collect() {
        const { user, system } = process.cpuUsage();
        this.reset();
        this.inc((user + system) / 1_000_000);
      },
    });
  }

  #gauge(name: string, help: string, value: () => number): void {
    new Gauge({
      name,
      help,
      registers: [this.#registry],
      collect() {
        this.set(value());
      },
    });
  }
}

/** Seconds since 1970, as the kernel has it: steps of the clock since then do not count. */
function startTimeSeconds(): number {
  const ticks = processStartTime(process.pid)!;
  const [, bootSeconds] = /^btime (\d+)$/m.exec(readFileSync("/proc/stat", "latin1"))!;
  return Number(bootSeconds) + ticks / TICKS_PER_SECOND;
}

function maxDescriptors(): number {
  const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "latin1"))!;
  return Number(soft);
}
