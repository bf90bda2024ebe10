/**
 * The checkers: what must hold at every moment of every run. They look from outside, by the perfect
 * clock, at what the agents say, what they send and what the coordinator keeps.
 *
 * | name | what must hold |
 * | --- | --- |
 * | `exclusive` | no two hosts have live grants on one store, nor one host two that exclude each other |
 * | `older` | nor is there one while the older program writes |
 * | `epochs` | epochs grow from tenure to tenure |
 * | `recorded` | a tenure's record was acknowledged before its first grant |
 * | `commit` | an acknowledged write that was sent after lock and fence precedes each grant |
 * | `reachable` | the coordinator carried something out for the agent since the guard arrived |
 * | `late` | an acknowledgement that comes after its own deadline proves nothing |
 * | `held` | `held` is true on one node at most, beside no grant of another, not after a conflict |
 * | `belief` | nobody believes to hold what another gets, unless his entry was taken from him |
 * | `owner` | nobody's entry is replaced or deleted but by its holder |
 * | `tokens` | a dead token proves nothing ever again, and is told to be dead |
 * | `verified` | a token is verified only while it is good |
 * | `kind` | a refusal's kind is the true one |
 * | `answered` | a guard is answered in its time |
 * | `live` | after the faults every store is granted to somebody in time |
 * @module
 */
import type { Granted, Verified } from "../../../src/agent/types.ts";
import type { Refusal } from "../../../src/lease/errors.ts";
import type { TenureRecord } from "../../../src/lease/tenure.ts";
import type { Author, Message } from "../bucket.ts";
import type { SimClient } from "../client.ts";
import type { Description } from "../disk.ts";
import type { SimNode } from "../node.ts";
import type { Entry, ServerWatcher } from "../server.ts";
import type { World } from "../world.ts";
import { GrantChecks, type GrantLog } from "./grants.ts";
import { HeldChecks } from "./held.ts";
import { Owners } from "./owners.ts";
import { checkRefusal } from "./refusals.ts";
import { TokenChecks } from "./tokens.ts";

/** What was found not to hold. */
export interface Violation {
  readonly check: string;
  readonly message: string;
}

/** All checkers of one world. */
export class Checks implements ServerWatcher {
  readonly world: World;
  violation: Violation | null = null;
  readonly grants: GrantChecks;
  readonly held: HeldChecks;
  readonly owners: Owners;
  readonly tokens: TokenChecks;
  /** How many faults the coordinator suffers from now. */
  serverImpaired = 0;
  /** The lease bucket was made again with revisions it had given before. */
  pastLost = false;
  /** When the coordinator lost everything, tenures too. */
  amnesiaMs = -Infinity;
  /** Stores that were not granted since the faults ended. */
  #awaited: Set<string> | null = null;
  readonly #servedMs = new Map<number, number>();
  /** How many grants there were. */
  grantCount = 0;

  constructor(world: World) {
    this.world = world;
    this.grants = new GrantChecks(this);
    this.held = new HeldChecks(this);
    this.owners = new Owners(this);
    this.tokens = new TokenChecks(this);
  }

  /** Notes the first violation. */
  fail(check: string, message: string): void {
    if (this.violation !== null) return;
    this.violation = { check, message };
    this.world.trace.add("VIOLATION", `${check}: ${message}`);
  }

  get nowMs(): number {
    return this.world.scheduler.nowMs;
  }

  /** When the coordinator last carried something out for a process. */
  servedMs(process: number): number {
    return this.#servedMs.get(process) ?? -Infinity;
  }

  // ---- what the coordinator did ------------------------------------------------------------

  onEntry(store: string, before: Message<Entry> | null, author: Author, deleted: boolean): void {
    this.owners.onEntry(store, before, author, deleted);
  }

  onTenure(store: string, before: TenureRecord | null, record: TenureRecord): void {
    this.owners.onTenure(store, before, record);
  }

  onServed(process: number): void {
    this.#servedMs.set(process, this.nowMs);
  }

  onPastLost(): void {
    this.pastLost = true;
  }

  onAmnesia(): void {
    this.pastLost = true;
    this.amnesiaMs = this.nowMs;
    this.grants.onAmnesia();
  }

  // ---- what agents say and do --------------------------------------------------------------

  afterEvent(node: SimNode): void {
    if (this.violation !== null || node.run === null) return;
    this.grants.afterEvent(node);
    this.held.afterEvent(node);
  }

  agentGone(node: SimNode): void {
    this.grants.agentGone(node);
  }

  granted(client: SimClient, granted: Granted, description: Description): GrantLog {
    this.grantCount++;
    this.#awaited?.delete(client.wish.store);
    return this.grants.granted(client, granted, description);
  }

  refused(client: SimClient, refusal: Refusal): void {
    const { trace } = this.world;
    if (trace.on) {
      const { store } = client.wish;
      trace.add(client.node.label, `process ${client.pid}: ${store} refused, ${refusal.kind}`);
    }
    checkRefusal(this, client, refusal);
  }

  ended(client: SimClient): void {
    this.grants.ended(client);
  }

  verified(
    client: SimClient,
    verified: Verified & { askedMs: number; dead: boolean; asked: string },
  ): void {
    this.tokens.verified(client, verified);
  }

  verifyFailed(client: SimClient, refusal: Refusal, asked: string): void {
    this.tokens.verifyFailed(client, refusal, asked);
  }

  released(client: SimClient, outcome: { wasDead: boolean; refusal: Refusal | null }): void {
    this.tokens.released(client, outcome);
  }

  lost(client: SimClient, token: string): void {
    this.tokens.lost(client, token);
  }

  deadline(client: SimClient, change: string, told: { token: string; deadlineMs: number }): void {
    this.tokens.deadline(client, change, told);
  }

  /** The agent takes an acknowledgement for a proof of its hold. */
  proven(node: SimNode, store: string): void {
    this.held.proven(node, store);
  }

  saidHeld(node: SimNode, store: string): void {
    this.held.said(node, store);
  }

  olderWrites(store: string): void {
    this.grants.olderWrites(store);
  }

  // ---- liveness ----------------------------------------------------------------------------

  /** The faults are over: from now on every store has to be granted to somebody in time. */
  expectGrants(): void {
    this.#awaited = new Set(this.world.plan.stores);
  }

  demandGrants(): void {
    if (this.#awaited === null || this.#awaited.size === 0) return;
    const stores = [...this.#awaited].join(", ");
    this.fail("live", `nobody was granted ${stores} since the faults ended`);
  }
}
