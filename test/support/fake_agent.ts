/**
 * An agent without leases: the real socket server and real flocks, and the rest as the test says.
 *
 * It runs as a process of its own, so that it can be killed. It takes one JSON line a time on stdin,
 * see {@linkcode Order}, and answers each with a line on stdout.
 *
 *     bun test/support/fake_agent.ts DIRECTORY TTL_MS
 * @module
 */
import { randomUUID } from "node:crypto";
import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { KINDS } from "../../src/lease/errors.ts";
import type { Refusal } from "../../src/lease/errors.ts";
import type { ConnectionHandle, Handlers } from "../../src/socket/handlers.ts";
import { SocketServer } from "../../src/socket/server.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { tryFlock } from "../../src/sys/flock.ts";
import { isSocketBound, peerOf, sendWithDescriptor } from "../../src/sys/unix_socket.ts";

/** What a test can order. */
export interface Order {
  /** Whether grants are renewed from now on, every third of the TTL. */
  readonly renew?: boolean;
  /** Ends all grants at once, with this kind and message. */
  readonly lose?: { readonly kind: keyof typeof KINDS; readonly message: string };
  /** What guards are refused with from now on; null for granted. */
  readonly refuse?: Refusal | null;
  /** How long guards wait for their answer from now on, in ms. */
  readonly delayMs?: number;
  /** What `status` answers, in part. */
  readonly status?: Record<string, unknown>;
  /** What `status` is refused with; null for answered. */
  readonly statusRefusal?: Refusal | null;
  /** Stores that `held` answers true for. */
  readonly held?: readonly string[];
}

interface Grant {
  readonly connection: ConnectionHandle;
  readonly store: string;
  readonly follow: boolean;
  readonly fd: number;
  deadlineMs: number;
  lost: Refusal | null;
}

const [directory, ttlText] = process.argv.slice(2);
const ttlMs = Number(ttlText);
const grants = new Map<string, Grant>();
let renew = true;
let refuse: Refusal | null = null;
let statusRefusal: Refusal | null = null;
let delayMs = 0;
let held: readonly string[] = [];
let epoch = 40;
let status: Record<string, unknown> = {
  version: "0.0.0",
  node: "node-1",
  incarnation: "i-1",
  address: "10.0.0.1:7000",
  pid: process.pid,
  uptime_ms: 61_500,
  mode: "nats",
  state: "serving",
  ttl_ms: ttlMs,
  grace_ms: ttlMs,
  coordinator: { connected: true, server: "n1", version: "2.14.4", rtt_ms: 0.31 },
  counts: { held: 3, waiting: 0, foreign: 1, grants: 0, waiters: 0, connections: 1 },
  healthy: true,
  checks: [{ name: "coordinator", ok: true, message: "connected" }],
  warnings: [],
};

function refusal(kind: keyof typeof KINDS, message: string): Refusal {
  return { kind, message };
}

function lockOf(store: string): number | null {
  const flags = constants.O_RDWR | constants.O_CREAT;
  const fd = openSync(join(directory!, `${store}.lock`), flags, 0o640);
  if (tryFlock(fd)) return fd;
  closeSync(fd);
  return null;
}

function drop(token: string): void {
  const grant = grants.get(token);
  if (grant === undefined) return;
  grants.delete(token);
  closeSync(grant.fd);
}

/** A token's grant while it lives, else why it does not. */
function living(token: string, store: string): Grant | Refusal {
  const grant = grants.get(token);
  if (grant === undefined || (store !== "" && grant.store !== store)) {
    return refusal("no_token", "There is no such grant");
  }
  if (grant.lost !== null) return grant.lost;
  if (bootTimeMs() >= grant.deadlineMs) return refusal("lost", "The lease ran out");
  return grant;
}

const handlers: Handlers = {
  guard(params, connection, reply) {
    setTimeout(() => {
      if (connection.closed) return;
      if (refuse !== null) return reply.fail(refuse);
      const fd = lockOf(params.store);
      if (fd === null) return reply.fail(refusal("busy", `${params.store} is locked`));
      const token = randomUUID();
      const deadlineMs = bootTimeMs() + ttlMs;
      const { store, follow } = params;
      grants.set(token, { connection, store, follow, fd, deadlineMs, lost: null });
      reply.ok({
        token,
        store: params.store,
        epoch: ++epoch,
        revision: epoch,
        node: "node-1",
        remaining_ms: ttlMs,
        deadline_boot_ms: deadlineMs,
        lock_path: join(directory!, `${params.store}.lock`),
        unguarded: null,
      }, params.pass_lock ? () => fd : undefined);
    }, delayMs);
  },
  verify({ token, store }, _connection, reply) {
    const grant = living(token, store);
    if ("kind" in grant) return reply.fail(grant);
    reply.ok({ store, epoch, revision: epoch, remaining_ms: grant.deadlineMs - bootTimeMs() });
  },
  release({ token }, _connection, reply) {
    const grant = living(token, "");
    drop(token);
    if ("kind" in grant) reply.fail(grant);
    else reply.ok({});
  },
  held(params, _connection, reply) {
    const answers = (params.stores ?? []).map((store) => [store, held.includes(store)]);
    reply.ok({ held: Object.fromEntries(answers) });
  },
  holder({ store }, _connection, reply) {
    reply.ok({
      store,
      state: "other",
      node: "node-2",
      address: "10.0.0.2:7000",
      epoch: 7,
      since: "2026-01-02T03:04:05.000Z",
    });
  },
  status(_params, _connection, reply) {
    if (statusRefusal !== null) return reply.fail(statusRefusal);
    reply.ok(status as never);
  },
  leases({ after }, _connection, reply) {
    const lease = (store: string) => ({
      store,
      state: "self" as const,
      held: true,
      node: "node-1",
      address: null,
      epoch: 3,
      since: null,
    });
    reply.ok(
      after === undefined
        ? { leases: [lease("alpha")], next: "alpha" }
        : { leases: [lease("beta")], next: null },
    );
  },
};

const server = new SocketServer({
  handlers,
  maxConnections: 100,
  descriptors: 1_024,
  maxInFlight: 1_000,
  socketBound: isSocketBound,
  peerCredentials: peerOf,
  sendWithFd: sendWithDescriptor,
  mayConnect: () => null,
  mayCall: () => null,
  onClose(connection) {
    for (const [token, grant] of grants) if (grant.connection === connection) drop(token);
  },
  onError(error) {
    console.error(error);
  },
});
await server.listen(join(directory!, "agent.sock"));

setInterval(() => {
  if (!renew) return;
  for (const [token, grant] of grants) {
    if (grant.lost !== null) continue;
    grant.deadlineMs = bootTimeMs() + ttlMs;
    const { store, deadlineMs } = grant;
    const news = { token, store, deadline_boot_ms: deadlineMs };
    if (grant.follow) grant.connection.notify("renewed", news);
  }
}, ttlMs / 3);

function obey(order: Order): void {
  renew = order.renew ?? renew;
  if (order.refuse !== undefined) refuse = order.refuse;
  if (order.statusRefusal !== undefined) statusRefusal = order.statusRefusal;
  delayMs = order.delayMs ?? delayMs;
  held = order.held ?? held;
  status = { ...status, ...order.status };
  if (order.lose === undefined) return;
  for (const [token, grant] of grants) {
    grant.lost = order.lose;
    grant.connection.notify("lost", { token, store: grant.store, ...order.lose });
  }
}

console.log("ready");
for await (const line of console as unknown as AsyncIterable<string>) {
  obey(JSON.parse(line));
  console.log("done");
}
// The test that started us is gone.
process.exit(0);
