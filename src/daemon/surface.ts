/**
 * The socket in front of the agent.
 * @module
 */
import { dirname } from "node:path";
import type { Agent } from "../agent/agent.ts";
import type { Client } from "../agent/types.ts";
import type { RunOptions } from "../cli/run_options.ts";
import type { Log } from "../service/log.ts";
import { takeActivationFd } from "../socket/activation.ts";
import { inFlightLimit } from "../socket/limits.ts";
import { groupsFromProc, PeerPolicy } from "../socket/peers.ts";
import type { StatusResult } from "../socket/protocol.ts";
import { SocketServer } from "../socket/server.ts";
import { makeSocketDirectory } from "../socket/socket_directory.ts";
import { peerInodeOf } from "../sys/socket_peer.ts";
import { isSocketBound, peerOf, sendWithDescriptor } from "../sys/unix_socket.ts";
import { handlersOf } from "./handlers.ts";
import type { StateMemory } from "./memory.ts";

/** What the socket is opened with. */
export interface SurfaceOptions {
  readonly options: RunOptions;
  readonly memory: StateMemory;
  readonly log: Log;
  /** How many descriptors this process may have. */
  readonly descriptors: number;
  readonly status: () => StatusResult;
}

/** The agent's surface. */
export interface Surface {
  readonly connections: number;
  /**
   * Listens on the path; or on the socket that systemd passed in, once it is `settled` whether there
   * is a coordinator: whoever caused the start by calling waits there already, and is not to be
   * refused for having come a moment too early.
   */
  listen(path: string, settled: Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

/** Prepares the socket; it listens when told. */
export function openSocket(agent: Agent, surface: SurfaceOptions): Surface {
  const { options, memory, log, descriptors } = surface;
  const { callers, limits } = options;
  const policy = new PeerPolicy({
    allowUids: callers.allowUids ?? [],
    allowGids: callers.allowGids ?? [],
    adminUids: callers.adminUids ?? [],
    ownUid: process.getuid!(),
    groupsOf: groupsFromProc,
  });
  const server = new SocketServer({
    handlers: handlersOf(agent, surface.status, (pid) => memory.clientConnected(pid)),
    maxConnections: limits.maxConnections,
    descriptors,
    maxInFlight: inFlightLimit(limits.maxWaiters, limits.maxGrants),
    peerCredentials: (fd) => ({ ...peerOf(fd), socket: peerInodeOf(fd) }),
    sendWithFd: sendWithDescriptor,
    socketBound: isSocketBound,
    mayConnect: (peer) => policy.connect(peer),
    mayCall: (peer, method) => policy.call(peer, method),
    onClose(connection) {
      if (connection.data === undefined) return;
      agent.clientGone(connection.data as Client);
      memory.clientGone(connection.peer.pid);
    },
    onTurnedAway: ({ kind, message }) => log.event("debug", "turned_away", { kind, message }),
    onError: (error) => log.event("error", "fault", { message: error.message }),
  });
  return {
    get connections() {
      return server.connections;
    },
    async listen(path, settled) {
      const fd = takeActivationFd(process.env, process.pid);
      if (fd === null) {
        if (options.socketIsDefault) makeSocketDirectory(dirname(path));
        await server.listen(path);
      } else {
        await settled;
        await server.listenOn(fd);
      }
      log.event("info", "listening", { socket: fd === null ? path : `descriptor ${fd}` });
    },
    stop: () => server.stop(),
  };
}
