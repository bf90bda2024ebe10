/**
 * Checkers of grants: who may write at one time, and what must have come before.
 * @module
 */
import type { Granted } from "../../../src/agent/types.ts";
import type { SimClient } from "../client.ts";
import type { Description, LockFile } from "../disk.ts";
import type { Run, SimNode } from "../node.ts";
import { short } from "../trace.ts";
import type { Checks } from "./checks.ts";

/** A grant as the perfect clock sees it. */
export interface GrantLog {
  readonly client: SimClient;
  readonly node: SimNode;
  readonly run: Run;
  readonly store: string;
  readonly epoch: number;
  readonly shared: boolean;
  readonly inode: number;
  readonly fromMs: number;
  /** Until when its agent believes in it; moves with renewals while it is not lost. */
  deadlineMs: number;
  /** When its client, and whatever that left running, stopped writing. */
  endedMs: number;
  lost: boolean;
}

/**
 * The older program takes no margin: its belief may outlast its entry by what two clocks differ.
 * As a share of the TTL.
 */
const OLDER_ERROR = 0.025;

/** What the perfect clock may be off by after all that floating point, in milliseconds. */
const ROUNDING_MS = 1e-6;

/** Checks grants. */
export class GrantChecks {
  readonly #checks: Checks;
  readonly #grants = new Map<string, GrantLog[]>();
  /** By store: the newest tenure in which a grant was made. */
  readonly #tenures = new Map<string, { process: number; epoch: number }>();

  constructor(checks: Checks) {
    this.#checks = checks;
  }

  /** The grants on a store that are live now. */
  live(store: string): GrantLog[] {
    const { nowMs } = this.#checks;
    const grants = this.#grants.get(store) ?? [];
    return grants.filter((grant) => isLive(grant, nowMs) && !isRemoved(grant));
  }

  granted(client: SimClient, granted: Granted, description: Description): GrantLog {
    const { node, run, wish: { store, shared } } = client;
    const { nowMs, world } = this.#checks;
    const grant: GrantLog = {
      client,
      node,
      run: run!,
      store,
      epoch: granted.epoch,
      shared,
      inode: description.file.inode,
      fromMs: nowMs,
      deadlineMs: node.clock.perfectMs(granted.deadlineMs),
      endedMs: Infinity,
      lost: false,
    };
    if (world.trace.on) {
      const leftMs = Math.round(grant.deadlineMs - nowMs);
      const how = shared ? ", shared" : "";
      world.trace.add(
        node.label,
        `process ${client.pid}: ${store} granted${how}, epoch ${
          short(grant.epoch)
        }, for ${leftMs} ms`,
      );
    }
    this.#checkDisk(grant, description.file);
    this.#checkEpoch(grant);
    this.#checkCommit(grant, description);
    this.#checkAlone(grant);
    // With its tenure's record lost, nobody else can know of this one.
    if (this.#isForgotten(grant)) grant.endedMs = nowMs;
    const grants = this.#grants.get(store);
    if (grants === undefined) this.#grants.set(store, [grant]);
    else grants.push(grant);
    return grant;
  }

  /** Whatever the coordinator has forgotten, the disk has not. */
  #checkDisk({ node, store, epoch }: GrantLog, file: LockFile): void {
    if (file.highest > epoch) {
      const message = `${node.label} is granted ${store} at epoch ${short(epoch)}, though ${
        short(file.highest)
      } was granted on its disk`;
      return this.#checks.fail("epochs", message);
    }
    file.highest = epoch;
  }

  /** Whether it is of a life of the coordinator that it has lost altogether. */
  #isForgotten({ epoch }: GrantLog): boolean {
    return this.#checks.amnesiaMs > -Infinity && epoch > this.#checks.world.server.lastRevision;
  }

  #checkEpoch(grant: GrantLog): void {
    const { run: { process, coordinator }, store, epoch, node } = grant;
    const last = this.#tenures.get(store);
    if (last?.process === process && last.epoch === epoch) return;
    if (this.#isForgotten(grant)) return;
    if (last !== undefined && epoch <= last.epoch) {
      const message = `${node.label} is granted ${store} at epoch ${short(epoch)}, which is not ` +
        `above ${short(last.epoch)}`;
      return this.#checks.fail("epochs", message);
    }
    if (!coordinator.recorded.get(store)?.has(epoch)) {
      const message = `${node.label} is granted ${store} at epoch ${short(epoch)}, whose record ` +
        "was not acknowledged";
      return this.#checks.fail("recorded", message);
    }
    this.#tenures.set(store, { process, epoch });
  }

  #checkCommit(grant: GrantLog, description: Description): void {
    const { client, run, store, node } = grant;
    const proof = run.coordinator.proofs.get(store);
    const fencedMs = run.locks.fencedMs.get(client.pid) ?? Infinity;
    const afterMs = Math.max(description.lockedMs, fencedMs, client.arrivedMs);
    if (proof === undefined || proof.sentMs < afterMs) {
      const message = `${node.label} grants ${store} to process ${client.pid} with no ` +
        "acknowledged write sent after lock and fence";
      return this.#checks.fail("commit", message);
    }
    if (this.#checks.servedMs(run.process) < client.arrivedMs) {
      const message = `${node.label} grants ${store} to process ${client.pid} although the ` +
        "coordinator did nothing for it since the guard arrived";
      this.#checks.fail("reachable", message);
    }
  }

  /** Nobody else may have a live grant that excludes this one. */
  #checkAlone(grant: GrantLog): void {
    const { nowMs } = this.#checks;
    if (!isLive(grant, nowMs) || this.#isForgotten(grant)) return;
    const { store, node, shared, inode } = grant;
    const others = this.#grants.get(store);
    if (others !== undefined) {
      for (const other of others) {
        if (other === grant || !isLive(other, nowMs) || isRemoved(other)) continue;
        const sameHost = other.node === node;
        if (sameHost && ((shared && other.shared) || inode !== other.inode)) continue;
        return this.#checks.fail("exclusive", describePair(other, grant, nowMs));
      }
      if (others.length > 8) this.#prune(store, nowMs);
    }
    this.#checkOlder(store, grant);
  }

  #checkOlder(store: string, grant: GrantLog): void {
    const { world, nowMs } = this.#checks;
    const hold = world.older?.writing(store) ?? null;
    if (hold === null) return;
    const { ttlMs } = world.plan;
    if (nowMs >= hold.untilMs - OLDER_ERROR * ttlMs) return;
    // Grants that were there first: the older program keeps no grace, so an entry that went early
    // leaves nothing to keep the two apart. So it is for an entry that we never saw.
    const disturbed = (world.server.disturbedMs.get(store) ?? -Infinity) >= grant.fromMs - ttlMs ||
      (world.server.disturbedMs.get(store) ?? -Infinity) >= hold.sinceMs;
    const saw = (grant.node.sawOlderMs.get(store) ?? -Infinity) >= hold.sinceMs;
    const theyFirst = hold.sinceMs < grant.fromMs;
    if (disturbed && !(theyFirst && saw)) return;
    const message = `${grant.node.label} has a grant on ${store} since ${
      seconds(grant.fromMs)
    } while the older program, which took it at ${seconds(hold.sinceMs)}, writes until ${
      seconds(hold.untilMs)
    }`;
    this.#checks.fail("older", message);
  }

  /** The older program believes, anew, that it may write. */
  olderWrites(store: string): void {
    for (const grant of this.live(store)) this.#checkOlder(store, grant);
  }

  ended({ grant }: SimClient): void {
    if (grant !== null && grant.endedMs === Infinity) grant.endedMs = this.#checks.nowMs;
  }

  /** Follows the deadlines that the agent believes in. */
  afterEvent(node: SimNode): void {
    const run = node.run!;
    for (const [store, grants] of this.#grants) {
      let leaseMs: number | null = null;
      for (const grant of grants) {
        if (grant.run !== run || grant.lost || grant.endedMs !== Infinity) continue;
        leaseMs ??= this.#leaseMs(node, store);
        const lease = run.agent.inspect(store)?.store.lease;
        if (lease?.phase !== "ours" || lease.epoch !== grant.epoch) {
          grant.lost = true;
          continue;
        }
        if (leaseMs <= grant.deadlineMs + ROUNDING_MS) continue;
        grant.deadlineMs = leaseMs;
        this.#checkAlone(grant);
      }
    }
  }

  /** When the hold on a store ends, as its agent believes, by the perfect clock. */
  #leaseMs(node: SimNode, store: string): number {
    const known = node.run!.agent.inspect(store);
    if (known === null || known.store.lease.phase !== "ours") return -Infinity;
    const { ttlMs, marginMs } = known.context.timing;
    return node.clock.perfectMs(known.store.lease.provenAtMs + ttlMs - marginMs);
  }

  /** No belief of this agent's moves any more. */
  agentGone(node: SimNode): void {
    for (const grants of this.#grants.values()) {
      for (const grant of grants) if (grant.node === node) grant.lost = true;
    }
  }

  /** With tenures gone nobody can know whom they displace, nor which epochs were given. */
  onAmnesia(): void {
    for (const grants of this.#grants.values()) {
      for (const grant of grants) grant.endedMs = Math.min(grant.endedMs, this.#checks.nowMs);
    }
    this.#tenures.clear();
  }

  #prune(store: string, nowMs: number): void {
    const kept = this.#grants.get(store)!.filter((grant) =>
      grant.endedMs > nowMs && (grant.deadlineMs > nowMs || !grant.lost)
    );
    this.#grants.set(store, kept);
  }
}

function isLive(grant: GrantLog, nowMs: number): boolean {
  return nowMs < grant.endedMs - ROUNDING_MS && nowMs < grant.deadlineMs - ROUNDING_MS;
}

/** Whether the store that it was for was removed from its host: then nobody writes to it there. */
function isRemoved({ node, store, inode }: GrantLog): boolean {
  return node.disk.file(store)?.inode !== inode;
}

function describePair(first: GrantLog, second: GrantLog, nowMs: number): string {
  const leftMs = Math.round(first.deadlineMs - nowMs);
  return `process ${second.client.pid} of ${second.node.label} has a grant on ${second.store} at ` +
    `epoch ${short(second.epoch)} while process ${first.client.pid} of ${first.node.label} has ` +
    `one at epoch ${short(first.epoch)} for ${leftMs} ms more`;
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(3)} s`;
}
