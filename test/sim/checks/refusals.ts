/**
 * Checker of refusals: a refusal's kind is the true one.
 * @module
 */
import type { Kind, Refusal } from "../../../src/lease/errors.ts";
import type { SimClient } from "../client.ts";
import type { Checks } from "./checks.ts";

/**
 * How long before a guard arrived what stands in its way may have begun, in milliseconds: a request
 * sent before can be what it waits for, up to its timeout and a retry.
 */
const BEFORE_MS = 4_000;

/** How old stale reads can be, in milliseconds. */
const STALE_MS = 10_000;

/** How much longer than its wait a guard may take: lease, proof, and what a loss adds to them. */
const ANSWER_MS = 6_000;

/** What guards are refused as because of the disk. */
const OF_THE_DISK: ReadonlySet<Kind> = new Set(["misconfigured", "unknown_store", "stale_epoch"]);

/** Checks one refusal of a guard. */
export function checkRefusal(checks: Checks, client: SimClient, refusal: Refusal): void {
  const { node, pid, wish: { store } } = client;
  const why = untruth(checks, client, refusal);
  if (why !== null) {
    checks.fail(
      "kind",
      `${node.label} refuses ${store} to process ${pid} as ${refusal.kind}: ${why}`,
    );
  }
  if (OF_THE_DISK.has(refusal.kind)) {
    const known = node.run?.agent.inspect(store) ?? null;
    const held = known?.store.held(node.clock.bootMs(), known.context);
    // Or it would keep hosts out that can write the store.
    // The agent says so of all its stores where the bucket contradicts it.
    if (held && !client.run?.contradicted) {
      checks.fail("held", `${node.label} holds ${store}, which it cannot write`);
    }
  }
  const tookMs = checks.nowMs - client.arrivedMs;
  const wasPaused = node.impairedMs >= client.arrivedMs;
  if (!wasPaused && tookMs > client.wish.waitMs * 1.02 + ANSWER_MS) {
    checks.fail("answered", `${node.label} answers process ${pid} after ${Math.round(tookMs)} ms`);
  }
}

function untruth(checks: Checks, client: SimClient, refusal: Refusal): string | null {
  // Whoever slept finds many waits over at once, and what was in their way is over, too.
  if (client.node.impairedMs >= client.arrivedMs - BEFORE_MS) return null;
  // With a TTL too small for renewals nothing is held for long.
  if (client.node.world.server.smallMs >= client.arrivedMs - BEFORE_MS) return null;
  switch (refusal.kind) {
    case "unavailable":
      return isUnavailableTrue(checks, client, client.arrivedMs)
        ? null
        : "but nothing was in its way";
    case "not_holder":
      return refusal.holder ? checkHolder(checks, client, refusal.holder.node) : null;
    case "grace":
      return checkGrace(checks, client, refusal);
    case "busy":
      return isBusyTrue(checks, client) ? null : "but neither turn nor lock was taken";
    case "draining":
      return isDrainingTrue(checks, client) ? null : "but nobody asked it to";
    case "stale_epoch":
      return checks.pastLost ? null : "but the coordinator has not gone back in time";
    case "unknown_store":
      return wasMissing(checks, client) ? null : "but its directory is there";
    case "misconfigured":
      return wasFull(client) || wasBroken(client) || client.run?.contradicted
        ? null
        : "but its disk is in order";
    default:
      return "which no guard here can be refused as";
  }
}

/** Whether something stood between the agent and the coordinator about when the guard waited. */
export function isUnavailableTrue(checks: Checks, client: SimClient, sinceMs: number): boolean {
  const { node, run } = client;
  const { world } = checks;
  if (run === null || !run.link.connected || node.paused || run.link.blocked) return true;
  const fromMs = sinceMs - BEFORE_MS;
  // With revisions that were given before, what is read never explains a conflict.
  if (checks.pastLost) return true;
  // Nor does it while entries come and go faster than they can be read.
  const disturbedMs = world.server.disturbedMs.get(client.wish.store) ?? -Infinity;
  if (disturbedMs >= sinceMs - BEFORE_MS) return true;
  return Math.max(run.link.impairedMs, node.impairedMs) >= fromMs ||
    world.serverImpairedMs >= fromMs || world.server.staleUntilMs >= fromMs;
}

function checkHolder(checks: Checks, client: SimClient, holder: string): string | null {
  const { world, owners } = checks;
  const { store } = client.wish;
  const untilMs = owners.presentMs(store, holder);
  const stalenessMs = world.plan.staleReads ? STALE_MS : 0;
  // Known from the last try, which may be as long ago as the pause between tries.
  const knownMs = BEFORE_MS + world.plan.ttlMs / 3 + stalenessMs;
  if (untilMs >= client.arrivedMs - knownMs) return null;
  const disturbed =
    (world.server.disturbedMs.get(store) ?? -Infinity) >= client.arrivedMs - knownMs;
  return disturbed ? null : `but ${holder} has no entry`;
}

function checkGrace(checks: Checks, client: SimClient, refusal: Refusal): string | null {
  const { world, owners, nowMs } = checks;
  const { node, wish: { store } } = client;
  const lease = client.run?.agent.inspect(store)?.store.lease;
  // Clients of an earlier agent of the host are waited for until their deadlines, grace or not; that
  // stays owed when the lease was given up in between, as by a step-down.
  const awaits = lease?.phase === "ours" && lease.awaited !== null;
  const inherits = (client.run?.memory.previousIncarnations.size ?? 0) > 0;
  const graceMs = Math.max(world.plan.graceMs, inherits ? world.plan.ttlMs : 0);
  // The tenure may be given up with the same breath; what it owes stays known.
  if (lease === undefined || lease.graceUntilMs <= node.clock.bootMs()) return "but it owes none";
  if ((refusal.retryAfterMs ?? 0) > graceMs + 1) return "for longer than a grace";
  // Decided when a tenure was recorded, or when an open one was read and the writing failed.
  const readMs = client.run?.coordinator.readOpenMs.get(store) ?? -Infinity;
  const owedMs = Math.max(owners.owedMs.get(store) ?? -Infinity, readMs);
  const owed = owedMs >= nowMs - 2.2 * graceMs - 5_000 || node.sawOlderMs.has(store) ||
    client.run!.memory.owed.has(store) || awaits;
  return owed ? null : "but nobody was displaced";
}

function isBusyTrue(checks: Checks, client: SimClient): boolean {
  const { node, run, wish: { store } } = client;
  const known = run?.agent.inspect(store)?.store;
  if (known !== undefined && known.unfinished + known.waiting > 0) return true;
  // Whoever had the turn may be refused with the same breath.
  for (const other of node.clients) {
    if (other !== client && other.wish.store === store && other.arrivedMs <= checks.nowMs) {
      return true;
    }
  }
  const file = node.disk.file(store);
  if (file?.lockedBy) return true;
  return (node.disk.freedMs.get(store) ?? -Infinity) >= checks.nowMs - 60;
}

function isDrainingTrue(checks: Checks, { node, run, wish: { store } }: SimClient): boolean {
  if (run?.agent.state === "draining" || (node.stepdowns.get(store) ?? 0) > 0) return true;
  return (node.steppedDownMs.get(store) ?? -Infinity) >= checks.nowMs - 5;
}

function wasMissing(checks: Checks, { node, wish: { store }, arrivedMs }: SimClient): boolean {
  if (node.disk.file(store) === null) return true;
  return (node.disk.missingMs.get(store) ?? -Infinity) >= Math.min(arrivedMs, checks.nowMs - 60);
}

function wasFull({ node: { disk }, arrivedMs }: SimClient): boolean {
  return disk.full || disk.fullMs >= arrivedMs;
}

function wasBroken({ node: { disk }, arrivedMs, wish: { store } }: SimClient) {
  return disk.broken.has(store) || (disk.brokenMs.get(store) ?? -Infinity) >= arrivedMs;
}
