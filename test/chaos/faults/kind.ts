/**
 * What a fault is.
 * @module
 */
import type { Random } from "../../support/random.ts";
import type { Server } from "../servers.ts";
import type { World } from "../world.ts";

/** A fault that was injected. */
export interface Injected {
  readonly targets: readonly string[];
  readonly detail?: string;
  /** Puts it right; absent where there is nothing to put right. */
  heal?(): Promise<void> | void;
}

/** A kind of fault. */
export interface FaultKind {
  readonly name: string;
  /** Two faults of one area are not injected at once. */
  readonly area:
    | "servers"
    | "network"
    | "agents"
    | "clocks"
    | "credentials"
    | "records"
    | "writers";
  /** Whether it can be injected in this run; default yes. */
  fits?(world: World): boolean;
  /** Throws where it cannot be done just now. */
  inject(world: World, random: Random): Promise<Injected> | Injected;
}

/** The server that leads the bucket of leases, or any while none does. */
export async function leaderOf(world: World, random: Random): Promise<Server> {
  return await world.servers.leader("KV_leases") ?? random.pick(world.servers.all);
}
