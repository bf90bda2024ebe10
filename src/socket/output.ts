/**
 * What goes out on one connection: in order, many lines in one write, descriptors at their place.
 * @module
 */
import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { atTurnEnd } from "../sys/turn.ts";
import { MAX_BACKLOG_BYTES } from "./protocol.ts";
import type { PassedLock } from "./handlers.ts";
import { descriptorOf } from "./handle.ts";

/**
 * Sends `bytes` with `fd` attached (SCM_RIGHTS) on the socket `socketFd` without blocking. Returns how
 * many bytes the kernel took, at least 1 (the descriptor goes with the first), or 0 when it could take
 * none now. Throws when it never will.
 */
export type SendWithFd = (socketFd: number, bytes: Uint8Array, fd: number) => number;

/**
 * How soon to try again when the kernel took nothing: the runtime does not tell when a socket with an
 * empty queue becomes writable. Doubled from the first to the last.
 */
const FIRST_RETRY_MS = 1;
const LAST_RETRY_MS = 25;

/** A line that brings a descriptor. */
interface Parcel {
  readonly line: Buffer;
  readonly descriptor: PassedLock;
}

/** What {@linkcode Output} needs and tells. */
export interface OutputOptions {
  readonly sendWithFd: SendWithFd;
  /** Told once when more than 8 MiB wait: the client does not read. */
  readonly onOverflow: () => void;
  /** Told whenever a client that was behind has caught up. */
  readonly onDrain: () => void;
}

/** The output of one connection. */
export class Output {
  readonly #socket: Socket;
  readonly #sendWithFd: SendWithFd;
  readonly #onOverflow: () => void;
  readonly #onDrain: () => void;
  readonly #onTurnEnd = (): void => {
    this.#scheduled = false;
    this.flush();
  };
  /** Lines of this turn of the event loop, not yet handed to the socket. */
  #text = "";
  #scheduled = false;
  /** What waits behind a descriptor that the kernel has not taken yet, that first; else empty. */
  #queue: (Parcel | string)[] = [];
  #queuedBytes = 0;
  #retry: ReturnType<typeof setTimeout> | null = null;
  #closed = false;

  constructor(socket: Socket, options: OutputOptions) {
    this.#socket = socket;
    this.#sendWithFd = options.sendWithFd;
    this.#onOverflow = options.onOverflow;
    this.#onDrain = options.onDrain;
    socket.on("drain", this.#onDrain);
  }

  /** About how many bytes the client has yet to read, besides what the kernel holds. */
  get backlogBytes(): number {
    return this.#socket.writableLength + this.#queuedBytes + this.#text.length;
  }

  /** Whether the client reads more slowly than it is written to. */
  get congested(): boolean {
    return this.#socket.writableNeedDrain || this.#queue.length > 0;
  }

  /** Whether nothing can be sent any more. */
  get closed(): boolean {
    return this.#closed || this.#socket.destroyed;
  }

  /** Sends `line` at the end of this turn of the event loop, with whatever else it produces. */
  send(line: string): void {
    if (this.#closed) return;
    this.#text += line;
    // Not to hold more than a write's worth, however much one turn produces.
    if (this.#text.length > this.#socket.writableHighWaterMark) return this.#write();
    if (this.#scheduled) return;
    this.#scheduled = true;
    atTurnEnd("answer", this.#onTurnEnd);
  }

  /** Sends `line` with a descriptor, after everything sent before it is in the kernel. */
  sendWithDescriptor(line: string, descriptor: PassedLock): void {
    if (this.#closed) return;
    this.flush();
    const parcel = { line: Buffer.from(line), descriptor };
    this.#queue.push(parcel);
    this.#queuedBytes += parcel.line.length;
    if (this.#queue.length === 1) this.#whenFlushed();
    this.#checkBacklog();
  }

  /** Hands to the socket what was held back. */
  flush(): void {
    if (this.#text !== "") this.#write();
  }

  #write(): void {
    const text = this.#text;
    this.#text = "";
    if (this.#queue.length > 0) {
      this.#queue.push(text);
      this.#queuedBytes += text.length;
    } else {
      this.#socket.write(countable(text));
    }
    this.#checkBacklog();
  }

  /** Ends the output: what the socket has is still sent; what comes from now on is dropped. */
  end(): void {
    this.flush();
    this.close();
    this.#socket.end();
  }

  /** Drops everything: no descriptor is touched after this. */
  close(): void {
    this.#closed = true;
    this.#text = "";
    this.#queue = [];
    this.#queuedBytes = 0;
    if (this.#retry !== null) clearTimeout(this.#retry);
    this.#retry = null;
  }

  #checkBacklog(): void {
    if (this.backlogBytes <= MAX_BACKLOG_BYTES) return;
    this.close();
    this.#onOverflow();
  }

  /** Goes on with the queue once the socket has handed everything to the kernel. */
  #whenFlushed(): void {
    if (this.#socket.writableLength === 0) return this.#sendParcel(FIRST_RETRY_MS);
    this.#socket.write("", () => {
      if (!this.#closed) this.#whenFlushed();
    });
  }

  /** Sends the descriptor at the head of the queue, and whatever waited only for it. */
  #sendParcel(retryMs: number): void {
    const { line, descriptor } = this.#queue[0] as Parcel;
    let sent: number;
    try {
      sent = this.#sendWithFd(descriptorOf(this.#socket), line, descriptor());
    } catch (error) {
      this.close();
      this.#socket.destroy(error instanceof Error ? error : new Error(String(error)));
      return;
    }
    if (sent === 0) {
      const nextMs = Math.min(retryMs * 2, LAST_RETRY_MS);
      this.#retry = setTimeout(() => this.#sendParcel(nextMs), retryMs);
      return;
    }
    this.#queue.shift();
    this.#queuedBytes -= line.length;
    if (sent < line.length) this.#socket.write(line.subarray(sent));
    while (typeof this.#queue[0] === "string") {
      const text = this.#queue.shift() as string;
      this.#queuedBytes -= text.length;
      this.#socket.write(countable(text));
    }
    if (this.#queue.length > 0) this.#whenFlushed();
    else this.#onDrain();
  }
}

/** A text as the runtime takes it best: its backlog counts a string's characters, which must be bytes. */
function countable(text: string): string | Buffer {
  return Buffer.byteLength(text) === text.length ? text : Buffer.from(text);
}
