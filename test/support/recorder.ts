/**
 * A NATS coordinator with a listener that writes down all it is told.
 * @module
 */
import { NatsCoordinator } from "../../src/nats/coordinator.ts";
import type { Drift, NatsListener, Problem, ReadyFacts } from "../../src/nats/listener.ts";
import type { NatsOptions } from "../../src/nats/options.ts";
import type { Finding } from "../../src/nats/setup_error.ts";
import type { TenureRecord } from "../../src/lease/tenure.ts";
import type { BucketsSeen } from "../../src/ports/coordinator.ts";
import { Client } from "../contract/coordinator.ts";
import { plainClock, plainTimers } from "./plain_clock.ts";
import { until } from "./wait.ts";

/** All that a listener was told. */
export class Recorder implements NatsListener {
  readonly connections: boolean[] = [];
  readonly ready: ReadyFacts[] = [];
  readonly problems: Problem[] = [];
  /** Whether each of the problems was news. */
  readonly news: boolean[] = [];
  readonly drifts: (Drift | null)[] = [];
  readonly denials: (Finding | null)[] = [];
  readonly buckets: BucketsSeen[] = [];
  /** The TTLs of buckets that were lost. */
  readonly ttlsBefore: number[] = [];
  /** What was told of connection and buckets, in its order. */
  readonly course: string[] = [];
  readonly tenures: { readonly store: string; readonly record: TenureRecord }[] = [];

  onConnection(connected: boolean): void {
    this.connections.push(connected);
    this.course.push(connected ? "up" : "down");
  }
  onTenure(store: string, record: TenureRecord): void {
    this.tenures.push({ store, record });
  }
  onReady(facts: ReadyFacts): void {
    this.ready.push(facts);
  }
  onProblem(problem: Problem, news: boolean): void {
    this.problems.push(problem);
    this.news.push(news);
  }
  onDrift(fault: Drift | null): void {
    this.drifts.push(fault);
  }
  onBuckets(seen: BucketsSeen, ttlBeforeMs?: number): void {
    if (ttlBeforeMs !== undefined) this.ttlsBefore.push(ttlBeforeMs);
    this.buckets.push(seen);
    this.course.push(seen);
  }
  /** How often the buckets were seen to be others. */
  get remade(): number {
    return this.buckets.filter((seen) => seen === "others").length;
  }
  onDenied(denied: Finding | null): void {
    this.denials.push(denied);
  }
}

/** A started coordinator, what it told, and its calls as promises. */
export class Subject extends Client {
  readonly nats: NatsCoordinator;
  readonly told: Recorder;

  /** Starts one; it need not be connected yet. */
  static start(options: Partial<NatsOptions> & { readonly urls: readonly string[] }): Subject {
    const told = new Recorder();
    const nats = NatsCoordinator.start({
      node: "alpha",
      incarnation: "a1",
      address: "http://alpha:8080",
      clock: plainClock,
      timers: plainTimers,
      ...options,
    }, told);
    return new Subject(nats, told);
  }

  /** Starts one and waits until it is connected. */
  static async connect(
    options: Partial<NatsOptions> & { readonly urls: readonly string[] },
  ): Promise<Subject> {
    const subject = Subject.start(options);
    await subject.connected();
    return subject;
  }

  private constructor(nats: NatsCoordinator, told: Recorder) {
    super({ settle: (promise) => promise }, nats);
    this.nats = nats;
    this.told = told;
  }

  /** The first problem told of this check, waited for. */
  problem(check: string): Promise<Problem> {
    return until(
      `a problem "${check}" is told`,
      () => this.told.problems.find((problem) => problem.check === check),
    );
  }

  async connected(): Promise<void> {
    try {
      await until("the coordinator is connected", () => this.nats.connected, 60_000);
    } catch (error) {
      throw new Error(`${(error as Error).message}: ${this.nats.problem?.message}`);
    }
  }

  async disconnected(): Promise<void> {
    await until("the coordinator is disconnected", () => !this.nats.connected);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.nats.stop();
  }
}
