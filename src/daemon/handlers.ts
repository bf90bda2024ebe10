/**
 * The protocol's methods on the agent: names and units change here, nothing else.
 * @module
 */
import type { Agent } from "../agent/agent.ts";
import type { Answer, Client, LeaseInfo } from "../agent/types.ts";
import type { Refusal } from "../lease/errors.ts";
import type { ConnectionHandle, Handlers, PassedLock, Reply } from "../socket/handlers.ts";
import type { HeldResult, StatusResult } from "../socket/protocol.ts";

/** The handlers, for the socket's server. */
export function handlersOf(
  agent: Agent,
  status: () => StatusResult,
  onConnect: (pid: number) => void,
): Handlers {
  const clientOf = (connection: ConnectionHandle): Client => {
    if (connection.data === undefined) {
      connection.data = new SocketClient(connection);
      onConnect(connection.peer.pid);
    }
    return connection.data as Client;
  };
  const unguarded = agent.options.standalone;
  return {
    guard(params, connection, reply) {
      const { store, wait_ms, shared, wait_lease, pass_lock, follow, purpose } = params;
      agent.guard(clientOf(connection), {
        store,
        waitMs: wait_ms,
        shared,
        waitLease: wait_lease,
        passLock: pass_lock,
        follow,
        purpose,
      }, {
        ok: (grant) =>
          reply.ok({
            token: grant.token,
            store,
            epoch: grant.epoch,
            revision: grant.revision,
            node: agent.options.node,
            remaining_ms: micros(grant.remainingMs),
            deadline_boot_ms: grant.deadlineMs,
            lock_path: grant.lockPath,
            unguarded,
          }, lockOf(agent, grant.token) ?? undefined),
        fail: (refusal) => reply.fail(refusal),
      });
    },
    verify({ token, store, pass_lock }, _connection, reply) {
      agent.verify({ token, store }, {
        ok({ epoch, revision, remainingMs }) {
          const lock = pass_lock ? lockOf(agent, token) : undefined;
          if (lock === null) return reply.fail(notPassed(store));
          reply.ok({ store, epoch, revision, remaining_ms: micros(remainingMs) }, lock);
        },
        fail: (refusal) => reply.fail(refusal),
      });
    },
    release({ token }, _connection, reply) {
      agent.release(token, reply);
    },
    held({ store, stores }, connection, reply) {
      const asker = { id: connection.id, uid: connection.peer.uid };
      const answer = forward(reply, (held: HeldResult["held"]) => ({ held }));
      if (store !== undefined) return agent.asking.one(asker, store, answer);
      // No question about any store: whether the client was told all there is to tell.
      if (stores?.length === 0) {
        return agent.watching.whenTold(clientOf(connection), () => reply.ok({ held: {} }));
      }
      agent.asking.many(asker, stores ?? [], answer);
    },
    holder({ store }, _connection, reply) {
      agent.holder(
        store,
        forward(reply, ({ held: _, ...info }: LeaseInfo) => info),
      );
    },
    watch({ stores }, connection, reply) {
      const client = clientOf(connection);
      // The answer goes out first: a client knows its subscription before it hears of it.
      agent.watching.watch(
        client,
        stores ?? null,
        forward(reply, (subscription: string) => ({ subscription })),
      );
    },
    unwatch({ subscription }, connection, reply) {
      if (agent.watching.unwatch(clientOf(connection), subscription)) return reply.ok({});
      const message = `This connection has no watch ${subscription}: see what watch answered`;
      reply.fail({ kind: "invalid", message });
    },
    status(_params, _connection, reply) {
      reply.ok(status());
    },
    leases(params, _connection, reply) {
      const { leases, next } = agent.leases(params);
      const { stepDowns } = agent.drains;
      const marked = leases.map((lease) => {
        const stepDown = stepDowns.of(lease.store);
        return stepDown === null ? lease : { ...lease, stepped_down_until: stepDown.until };
      });
      reply.ok({ leases: marked, next });
    },
    history({ store }, _connection, reply) {
      agent.history(store, forward(reply, (tenures) => ({ tenures })));
    },
    stepdown({ store, for_ms }, _connection, reply) {
      agent.stepdown(store ?? null, for_ms ?? null, ({ released, remaining, aging, overtaken }) => {
        reply.ok({
          released,
          remaining,
          ...(aging > 0 ? { aging } : {}),
          ...(overtaken ? { overtaken } : {}),
        });
      });
    },
  };
}

/** The lock of a grant, to be passed; null where it is not to be. */
function lockOf(agent: Agent, token: string): PassedLock | null {
  if (agent.lockOf(token) === null) return null;
  return () => {
    const fd = agent.lockOf(token);
    if (fd === null) throw new Error("Cannot pass the lock: its grant has ended");
    return fd;
  };
}

/** Whoever may leave a process behind with the lock says so before it is granted: it is journaled. */
function notPassed(store: string): Refusal {
  const message = `Cannot pass the lock of ${store}: its guard was asked for without pass_lock`;
  return { kind: "invalid", message };
}

/** To microseconds, downwards: what is left is never told as more. */
function micros(ms: number): number {
  return Math.floor(ms * 1_000) / 1_000;
}

function forward<T, R>(reply: Reply<R>, map: (result: T) => R): Answer<T> {
  return { ok: (result) => reply.ok(map(result)), fail: (refusal) => reply.fail(refusal) };
}

/** A connection as the agent sees it. */
class SocketClient implements Client {
  readonly #connection: ConnectionHandle;

  constructor(connection: ConnectionHandle) {
    this.#connection = connection;
  }

  get id(): number {
    return this.#connection.id;
  }

  get pid(): number {
    return this.#connection.peer.pid;
  }

  get uid(): number {
    return this.#connection.peer.uid;
  }

  get socket(): number {
    return this.#connection.peer.socket ?? 0;
  }

  get congested(): boolean {
    return this.#connection.congested;
  }

  onDrain(callback: () => void): void {
    this.#connection.onDrain(callback);
  }

  lost(grant: Parameters<Client["lost"]>[0]): void {
    this.#connection.notify("lost", grant);
  }

  deadline(...[change, { token, store, deadlineMs }]: Parameters<Client["deadline"]>): void {
    this.#connection.notify(change, { token, store, deadline_boot_ms: deadlineMs });
  }

  changed(subscription: string, { since: _, ...lease }: LeaseInfo): void {
    this.#connection.notify("lease", { subscription, ...lease });
  }
}
