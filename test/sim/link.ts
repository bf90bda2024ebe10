/**
 * One program's connection to the coordinator, and everything that can happen to messages on it.
 * @module
 */
import type { Outcome } from "../../src/ports/coordinator.ts";
import type { Random } from "./random.ts";
import type { Scheduler } from "./scheduler.ts";
import type { Request, SimServer } from "./server.ts";

/** How messages fare. */
export interface Weather {
  readonly latencyMs: number;
  readonly lossRate: number;
  readonly slowRate: number;
  readonly twiceRate: number;
}

/** How many faults block each direction. */
export interface Blocked {
  up: number;
  down: number;
}

/** What a connection runs in. */
export interface Surroundings {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly server: SimServer;
  readonly plan: Weather;
  /** Whether messages are neither lost, late nor repeated any more. */
  readonly calm: boolean;
}

/** How late a slow or repeated message is, at most: past every timeout, in milliseconds. */
const MAX_SLOW_MS = 5_000;

/** A half-open connection is found out by missed pings within this time, in milliseconds. */
const FOUND_OUT_MS = [2_000, 6_000] as const;

type Direction = "up" | "down";

/** A connection. Its session number changes with each reconnect: answers to the last one are lost. */
export class Link {
  connected = false;
  /** Told when the connection comes or goes. */
  onChange: (connected: boolean) => void = () => {};
  /** The last time a message was lost, late, or stuck, or the connection was down. */
  impairedMs = -Infinity;
  #session = 0;
  #stuck: { direction: Direction; run: () => void }[] = [];
  readonly #world: Surroundings;
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #server: SimServer;
  readonly #blocked: Blocked;

  /** `blocked` counts the faults that block each direction; it outlives the connection. */
  constructor(world: Surroundings, blocked: Blocked = { up: 0, down: 0 }) {
    this.#world = world;
    this.#scheduler = world.scheduler;
    this.#random = world.random;
    this.#server = world.server;
    this.#blocked = blocked;
  }

  get blocked(): boolean {
    return this.#blocked.up > 0 || this.#blocked.down > 0;
  }

  /** Dials until it succeeds. */
  dial(): void {
    this.#scheduler.after(this.#random.between(10, 300), () => {
      if (this.connected) return;
      if (this.blocked || this.#server.frozen) return this.dial();
      this.#session++;
      this.connected = true;
      this.onChange(true);
    });
  }

  /** Goes down now; what is on its way up may still arrive. */
  drop(): void {
    if (!this.connected) return;
    this.connected = false;
    this.#spoilt();
    this.onChange(false);
    this.dial();
  }

  /** Goes away for good, with its program. */
  close(): void {
    this.connected = false;
    this.#session++;
    this.onChange = () => {};
  }

  /** Sends a request; `reply` is called at most once for each time it is carried out. */
  send(request: Request, reply: (outcome: Outcome<unknown>) => void): void {
    const session = this.#session;
    const serve = () =>
      this.#server.receive(request, (outcome) => {
        this.#transmit("down", () => {
          if (this.connected && session === this.#session) reply(outcome);
        });
      });
    this.#transmit("up", serve);
    // At a reconnect the client's library may send again what it could not be sure of.
    if (!this.#world.calm && this.#random.chance(this.#world.plan.twiceRate)) {
      this.#scheduler.after(this.#random.between(0, MAX_SLOW_MS), serve);
    }
  }

  /** Something told without being asked for. */
  tell(run: () => void): void {
    const session = this.#session;
    this.#transmit("down", () => {
      if (this.connected && session === this.#session) run();
    });
  }

  #transmit(direction: Direction, run: () => void): void {
    const { plan: { latencyMs, lossRate, slowRate }, calm } = this.#world;
    if (this.#blocked[direction] > 0) {
      this.#spoilt();
      // Either the network drops it for good, or a socket's buffer delivers it in the end.
      if (this.#random.chance(0.6)) this.#stuck.push({ direction, run });
      return;
    }
    if (!calm && this.#random.chance(lossRate)) return this.#spoilt();
    let delayMs = this.#random.between(0.5, 1.5) * latencyMs;
    if (!calm && this.#random.chance(slowRate)) {
      delayMs += this.#random.between(0, MAX_SLOW_MS);
      this.#spoilt(delayMs);
    }
    this.#scheduler.after(delayMs, run);
  }

  /** Nothing passes in this direction until the matching call of {@linkcode unblock}. */
  block(direction: Direction): void {
    this.#blocked[direction]++;
    this.#spoilt();
    const [soonMs, lateMs] = FOUND_OUT_MS;
    const session = this.#session;
    this.#scheduler.after(this.#random.between(soonMs, lateMs), () => {
      if (this.blocked && session === this.#session) this.drop();
    });
  }

  unblock(direction: Direction): void {
    if (--this.#blocked[direction] > 0) return;
    this.#spoilt();
    const stuck = this.#stuck;
    this.#stuck = [];
    for (const message of stuck) {
      if (message.direction !== direction) this.#stuck.push(message);
      else this.#scheduler.after(this.#random.between(0, 50), message.run);
    }
  }

  #spoilt(forMs = 0): void {
    this.impairedMs = Math.max(this.impairedMs, this.#scheduler.nowMs + forMs);
  }
}
