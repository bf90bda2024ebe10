/**
 * What processes use: processor time, memory, messages.
 * @module
 */
import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import type { NatsServer } from "../../test/support/nats.ts";

/** Kernel ticks a second, as /proc counts processor time. */
const TICKS = 100;

/** Processor time that a process has used so far, in seconds. */
export function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

/** Resident memory of a process, in MiB; `VmHWM` for the most it ever had. */
export function memoryMib(pid: number, which: "VmRSS" | "VmHWM" = "VmRSS"): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`^${which}:\\s+(\\d+)`, "m").exec(status)![1]) / 1_024;
}

/** The machine's load over the last minute: how much the wall times are worth. */
export function load(): number {
  return loadavg()[0];
}

/** What two processes and the wire between them have used up to now. */
export interface Usage {
  readonly atMs: number;
  readonly client: number;
  readonly server: number;
  readonly messages: number;
  readonly bytes: number;
}

/** Usage so far, of a client process and its server. */
export async function usage(pid: number, server: NatsServer): Promise<Usage> {
  const varz = await server.monitor("varz");
  return {
    atMs: performance.now(),
    client: cpuSeconds(pid),
    server: cpuSeconds(server.pid),
    messages: varz.in_msgs + varz.out_msgs,
    bytes: varz.in_bytes + varz.out_bytes,
  };
}

/** What was used between two looks. */
export function since(before: Usage, now: Usage): Usage & { readonly seconds: number } {
  return {
    seconds: (now.atMs - before.atMs) / 1_000,
    atMs: now.atMs,
    client: now.client - before.client,
    server: now.server - before.server,
    messages: now.messages - before.messages,
    bytes: now.bytes - before.bytes,
  };
}
