/**
 * Asks the agent for a grant, or again about one, with the locked descriptor.
 *
 * A descriptor travels with the bytes of the answer and is lost when the runtime reads them. So the
 * socket is kept from it until the answer came, and then becomes an ordinary connection.
 * @module
 */
import { closeSync } from "node:fs";
import type { Socket } from "node:net";
import { Connection } from "../../client/connection.ts";
import { agentError, AgentUnreachable } from "../../client/errors.ts";
import type { Methods, Notification } from "../../client/mod.ts";
import { codeOf } from "../../sys/errno.ts";
import { whenReadable } from "../../sys/readable.ts";
import { peerOf, receiveWithDescriptors } from "../../sys/unix_socket.ts";
import type { Received } from "../../sys/unix_socket.ts";

/** Methods whose answers bring a lock. */
export type Locking = "guard" | "verify";

/** A grant, or the confirmation of one, its lock, and the connection on which it was asked for. */
export interface Locked<M extends Locking> {
  readonly result: Methods[M]["result"];
  /** Ours; null where the agent sent none. */
  readonly lockFd: number | null;
  /** The process at the other end of the connection; 0 where it cannot be seen. */
  readonly agentPid: number;
  /** The agent's TTL in ms; null where it did not tell. */
  readonly ttlMs: number | null;
  readonly connection: Connection;
  /** Notifications that came right behind the answer. */
  readonly early: readonly Notification[];
}

/**
 * How much longer than its wait an answer may take: a slow coordinator is asked up to five things for a guard,
 * one after the other, and has 1.5 s for each.
 */
export const ANSWER_MS = 8_000;

const CHUNK_BYTES = 64 * 1_024;
/** Signals wake us; this is for whoever started us with them held off. */
const LOOK_EVERY_MS = 100;
const NEWLINE = 10;

/** A grant, its lock, and the connection on which it lives. */
export type LockedGrant = Locked<"guard">;

interface Answer {
  readonly id?: string;
  readonly method?: string;
  readonly result?: unknown;
  readonly error?: Parameters<typeof agentError>[0];
}

/** What to ask, and how long that may take. */
export interface LockedRequest<M extends Locking> {
  readonly method: M;
  readonly params: Methods[M]["params"];
  /** The socket's path, for messages. */
  readonly path: string;
  readonly withinMs: number;
}

/**
 * Asks on `socket`, which is connected, paused and not yet read from.
 *
 * @throws {AgentError} what the agent answered, or that it is gone.
 */
export function requestLocked<M extends Locking>(
  socket: Socket & { _handle?: { fd: number } },
  { method, params, path, withinMs }: LockedRequest<M>,
): Promise<Locked<M>> {
  const fd = socket._handle?.fd;
  if (fd === undefined) throw new Error("Cannot find the descriptor of the socket");
  return new Promise((resolve, reject) => {
    const reader = new AnswerReader<M>(fd, path);
    let settled = false;
    const fail = (error: unknown) => {
      settled = true;
      clearTimeout(timer);
      stop();
      socket.destroy();
      reject(error);
    };
    const onGone = () => fail(reader.gone());
    const timer = setTimeout(() => {
      // We may have been stopped until now, and the answer came in time.
      look();
      if (!settled) fail(silent(path, withinMs));
    }, withinMs);
    const look = () => {
      // Closed by the runtime, as when our question met a dead agent: the number may be another's.
      if (socket.destroyed || socket._handle?.fd !== fd) return onGone();
      try {
        const grant = reader.read();
        if (grant === null) return;
        settled = true;
        clearTimeout(timer);
        stop();
        socket.off("error", onGone);
        const { rest, ...found } = grant;
        const agentPid = peerOf(fd).pid;
        resolve({
          ...found,
          agentPid,
          connection: new Connection(socket, { path, received: rest }),
        });
      } catch (error) {
        fail(error);
      }
    };
    const stop = whenReadable(fd, LOOK_EVERY_MS, look);
    socket.on("error", onGone);
    try {
      // An agent that turns us away has said so by now: once writing failed, nothing can be read.
      reader.read();
    } catch (error) {
      return fail(error);
    }
    // The TTL decides when the command is asked to end; it is answered at once, from memory.
    const status = { jsonrpc: "2.0", id: "status", method: "status" };
    const request = { jsonrpc: "2.0", id: "locked", method, params };
    socket.write(`${JSON.stringify(status)}\n${JSON.stringify(request)}\n`);
  });
}

class AnswerReader<M extends Locking> {
  readonly #fd: number;
  readonly #path: string;
  #bytes = Buffer.alloc(0);
  #lockFd: number | null = null;
  #ttlMs: number | null = null;

  constructor(fd: number, path: string) {
    this.#fd = fd;
    this.#path = path;
  }

  /** Reads what is there; returns what was asked for once it came. */
  read(): (Omit<Locked<M>, "connection" | "agentPid"> & { rest: Uint8Array }) | null {
    for (;;) {
      const received = this.#receive();
      if (received === null) return null;
      for (const fd of received.fds) this.#keep(fd);
      if (received.bytes.byteLength === 0) throw this.gone();
      this.#bytes = Buffer.concat([this.#bytes, received.bytes]);
      const result = this.#takeAnswers();
      if (result === null) continue;
      const early = this.#lines().filter((line) => line.method !== undefined);
      return {
        result,
        lockFd: this.#lockFd,
        ttlMs: this.#ttlMs,
        early: early as unknown as Notification[],
        rest: this.#bytes,
      };
    }
  }

  /** An agent that is killed before it has read our question resets the connection. */
  #receive(): Received | null {
    try {
      return receiveWithDescriptors(this.#fd, CHUNK_BYTES);
    } catch (error) {
      throw codeOf(error) === "ECONNRESET" ? this.gone() : error;
    }
  }

  /** Takes lines up to the answer that was asked for. */
  #takeAnswers(): Methods[M]["result"] | null {
    for (let line = this.#line(); line !== null; line = this.#line()) {
      if (line.id === "status") {
        this.#ttlMs = (line.result as { ttl_ms?: number } | undefined)?.ttl_ms ?? null;
      } else if (line.error !== undefined) {
        // Also without an id: the agent does not take this connection.
        throw agentError(line.error);
      } else if (line.id === "locked") {
        return line.result as Methods[M]["result"];
      }
    }
    return null;
  }

  #lines(): Answer[] {
    const lines: Answer[] = [];
    for (let line = this.#line(); line !== null; line = this.#line()) lines.push(line);
    return lines;
  }

  #line(): Answer | null {
    const end = this.#bytes.indexOf(NEWLINE);
    if (end < 0) return null;
    const line = this.#bytes.subarray(0, end).toString();
    this.#bytes = this.#bytes.subarray(end + 1);
    try {
      return JSON.parse(line);
    } catch {
      throw new AgentUnreachable(
        `What listens on ${this.#path} does not speak the agent's protocol`,
      );
    }
  }

  #keep(fd: number): void {
    if (this.#lockFd === null) this.#lockFd = fd;
    else closeSync(fd);
  }

  /** The error for an agent that went away. */
  gone(): AgentUnreachable {
    return new AgentUnreachable(
      `The agent at ${this.#path} closed the connection before it answered; see its log`,
    );
  }
}

/** An agent that took the question and says nothing within the time that its answer may take. */
function silent(path: string, withinMs: number): AgentUnreachable {
  return new AgentUnreachable(
    `The agent at ${path} has not answered for ${
      Math.round(withinMs / 1_000)
    } s; look whether it ` +
      "hangs (systemctl status zit-agent)",
  );
}
