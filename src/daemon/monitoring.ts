/**
 * What monitors read over HTTP (`--http`): metrics, and whether the agent is alive and ready.
 * @module
 */
import type { Agent } from "../agent/agent.ts";
import type { Observer } from "../agent/types.ts";
import { checkLine } from "../cli/check_line.ts";
import { KINDS } from "../lease/errors.ts";
import { HttpServer, type Page, text } from "../service/http.ts";
import { Metrics } from "../service/metrics.ts";
import type { StatusResult } from "../socket/protocol.ts";
import { VERSION } from "../version.ts";
import { advances } from "./heartbeat.ts";

/** What monitoring looks at. */
export interface MonitoringSources {
  readonly address: string;
  readonly agent: Agent;
  readonly status: () => StatusResult;
  readonly coordinatorUp: () => boolean;
}

/** Monitoring under way. */
export interface Monitoring {
  /** Hears what is counted. */
  readonly observer: Observer;
  readonly port: number;
  stop(): Promise<void>;
}

/** Begins to serve; see {@linkcode HttpServer.listen} for what it throws. */
export async function startMonitoring(sources: MonitoringSources): Promise<Monitoring> {
  const metrics = metricsOf(sources);
  const server = await HttpServer.listen(sources.address, {
    "/metrics": async () => ({
      status: 200,
      type: metrics.contentType,
      body: await metrics.text(),
    }),
    "/healthz": () => alive(sources.agent),
    "/readyz": () => ready(sources.status()),
  });
  return {
    observer: new MetricsObserver(metrics, sources.agent.options.standalone !== null),
    port: server.port,
    stop: () => server.stop(),
  };
}

function metricsOf({ agent, status, coordinatorUp }: MonitoringSources): Metrics {
  return new Metrics({
    version: VERSION,
    node: agent.options.node,
    outcomes: ["granted", ...Object.keys(KINDS)],
    lossReasons: ["conflict", "deadline"],
    now: () => ({
      ...agent.counts(),
      coordinatorUp: coordinatorUp(),
      renewOverdueMs: agent.renewalOverdueMs,
      checks: status().checks,
    }),
  });
}

/** Alive: it answers, and the loop that renews leases advances. Nothing else restarts would mend. */
function alive(agent: Agent): Page {
  return advances(agent)
    ? { status: 200, ...text("alive\n") }
    : { status: 503, ...text(`renewals are late by ${Math.round(agent.overdueMs)} ms\n`) };
}

/** Ready: as `agent --check` says. */
function ready(status: StatusResult): Page {
  return { status: status.healthy ? 200 : 503, ...text(`${checkLine(status)}\n`) };
}

/** Counts what the agent tells. */
class MetricsObserver implements Observer {
  readonly #metrics: Metrics;
  readonly #unguarded: boolean;

  constructor(metrics: Metrics, unguarded: boolean) {
    this.#metrics = metrics;
    this.#unguarded = unguarded;
  }

  note(_store: string, note: Parameters<Observer["note"]>[1]): void {
    if (note.type === "proven") this.#metrics.renewed(note.tookMs);
    else if (note.type === "lost") this.#metrics.lost(note.reason);
  }

  guarded(_store: string, outcome: string, tookMs: number): void {
    this.#metrics.guarded(outcome, tookMs, this.#unguarded);
  }

  grantLost(): void {}

  problem(): void {}
}
