/**
 * Picks the replies to our requests out of what a server sends, as soon as they arrive. The client
 * library would hand each through its queues and promises: half of what an acknowledgement costs.
 * @module
 */
import { Buffer } from "node:buffer";

/** A reply as it came. */
export interface Reply {
  readonly text: string;
  /** The status that its headers begin with, such as 503 for "no responders"; 0 for none. */
  readonly status: number;
}

const NEWLINE = 0x0a;
const H = 0x48;
const M = 0x4d;
/** After each payload: CR LF. */
const CRLF_BYTES = 2;

/**
 * Cuts a server's stream into protocol messages. Those whose subject is `prefix` and a number are ours;
 * all others are passed on, whole and in their order.
 */
export class ReplyReader {
  readonly #plain: string;
  readonly #withHeaders: string;
  readonly #take: (id: number, reply: Reply) => void;
  /** The beginning of a message whose end has not come yet. */
  #rest: Buffer | null = null;
  /** How many bytes are still to come of a message that is not ours. */
  #foreignBytes = 0;

  /** `take` must not throw. */
  constructor(prefix: string, take: (id: number, reply: Reply) => void) {
    this.#plain = `MSG ${prefix}`;
    this.#withHeaders = `HMSG ${prefix}`;
    this.#take = take;
  }

  /** Takes the next bytes; returns those that are not ours, null for none. */
  read(chunk: Buffer): Buffer | null {
    const bytes = this.#rest === null ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = null;
    const foreign: Buffer[] = [];
    let foreignFrom = 0;
    let at = Math.min(this.#foreignBytes, bytes.length);
    this.#foreignBytes -= at;
    while (at < bytes.length) {
      const newline = bytes.indexOf(NEWLINE, at);
      const next = newline < 0 ? -1 : this.#message(bytes, at, newline);
      if (next === -1) {
        this.#rest = bytes.subarray(at);
        break;
      }
      if (next < 0) { // ours: it ends at -next
        if (foreignFrom < at) foreign.push(bytes.subarray(foreignFrom, at));
        foreignFrom = at = -next;
      } else {
        this.#foreignBytes = Math.max(0, next - bytes.length);
        at = Math.min(next, bytes.length);
      }
    }
    if (foreignFrom < at) foreign.push(bytes.subarray(foreignFrom, at));
    if (foreign.length === 0) return null;
    return foreign.length === 1 ? foreign[0] : Buffer.concat(foreign);
  }

  /** Where the message at `at` ends: negative if it was ours, -1 if it was and is not all there. */
  #message(bytes: Buffer, at: number, newline: number): number {
    const first = bytes[at];
    // PING, PONG, INFO, +OK, -ERR: a line and nothing more.
    if (first !== M && first !== H) return newline + 1;
    const line = bytes.toString("latin1", at, newline - 1);
    const bodyAt = newline + 1;
    const endAt = bodyAt + Number(line.slice(line.lastIndexOf(" ") + 1)) + CRLF_BYTES;
    const opening = first === M ? this.#plain : this.#withHeaders;
    if (!line.startsWith(opening)) return endAt;
    if (endAt > bytes.length) return -1;
    const id = parseInt(line.slice(opening.length), 10);
    this.#take(
      id,
      first === M ? plain(bytes, bodyAt, endAt) : withHeaders(bytes, line, bodyAt, endAt),
    );
    return -endAt;
  }
}

function plain(bytes: Buffer, bodyAt: number, endAt: number): Reply {
  return { text: bytes.toString("utf8", bodyAt, endAt - CRLF_BYTES), status: 0 };
}

/** `HMSG subject sid #headers #total`: the headers' first line is `NATS/1.0`, and a status if any. */
function withHeaders(bytes: Buffer, line: string, bodyAt: number, endAt: number): Reply {
  const headersBytes = Number(line.split(" ").at(-2));
  const headers = bytes.toString("latin1", bodyAt, bodyAt + headersBytes);
  const status = /^NATS\/1\.0 (\d{3})/.exec(headers)?.[1];
  const text = bytes.toString("utf8", bodyAt + headersBytes, endAt - CRLF_BYTES);
  return { text, status: Number(status ?? 0) };
}
