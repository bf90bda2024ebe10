/**
 * Signs of life for the service manager: fed only while the loop that renews leases advances.
 * @module
 */
import type { Notifier } from "../service/notify.ts";

/** What is watched. */
export interface Beating {
  /** How late the renewal loop is, in milliseconds; 0 while it is in time. */
  readonly overdueMs: number;
  /** Null until the TTL is known. */
  readonly timing: { readonly ttlMs: number } | null;
}

/**
 * Whether the loop that renews leases advances: its timers are served, coordinator or not. A third
 * of the TTL late, a whole renewal was left out.
 */
export function advances({ overdueMs, timing }: Beating): boolean {
  return overdueMs < (timing?.ttlMs ?? Infinity) / 3;
}

/** Begins to feed the watchdog, if there is one; returns how to stop. */
export function feedWatchdog(notifier: Notifier, beating: () => Beating): () => void {
  const { watchdogMs } = notifier;
  if (watchdogMs === null) return () => {};
  // Thrice in its patience: one may be dropped where systemd's queue is full, and one be late.
  const timer = setInterval(() => {
    if (advances(beating())) notifier.watchdog();
  }, watchdogMs / 3);
  return () => clearInterval(timer);
}
