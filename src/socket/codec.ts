/**
 * JSON-RPC 2.0, one object a line: bytes to requests, and answers to lines.
 *
 * Ids are kept as JSON text from request to answer, so that every id comes back exactly, also a number
 * that a double cannot hold.
 * @module
 */
import { isTooDeep, MAX_DEPTH } from "./depth.ts";
import type { Buffer } from "node:buffer";
import { type Line, LineSplitter, NOT_UTF8, TOO_LONG } from "./lines.ts";
import { type ErrorObject, MAX_REQUEST_BYTES } from "./protocol.ts";

/** The codes JSON-RPC itself defines. */
export const PARSE_ERROR = -32700;
export const INVALID_REQUEST = -32600;
export const METHOD_NOT_FOUND = -32601;
export const INTERNAL_ERROR = -32603;

/** The id of an answer to what had none that could be read. */
export const NO_ID = "null";

/** A request as it came: well-formed, not yet looked up. */
export interface Request {
  readonly kind: "request";
  /** The id as JSON text; null for a notification, which gets no answer. */
  readonly id: string | null;
  readonly method: string;
  /** Undefined where there were none. */
  readonly params: unknown;
}

/** A line that is no request; it is answered with `error` under `id`, also as JSON text. */
export interface BadRequest {
  readonly kind: "bad";
  readonly id: string;
  readonly error: ErrorObject;
}

/** Decodes what a client sends, at the pace of whoever calls {@linkcode next}. */
export class RequestDecoder {
  readonly #lines = new LineSplitter(MAX_REQUEST_BYTES);

  /** Bytes held back: an unfinished line, and requests not taken yet. */
  get bufferedBytes(): number {
    return this.#lines.bufferedBytes;
  }

  /** Hands in the next bytes. */
  push(chunk: Buffer): void {
    this.#lines.push(chunk);
  }

  /** The next request, or null when more bytes are needed. */
  next(): Request | BadRequest | null {
    const line = this.#lines.next();
    return line === null ? null : decodeLine(line);
  }

  /**
   * At the end of the stream: a last request that no newline ended, or null. A truncated request
   * cannot pass for another one, because no object's text is the start of a longer object's.
   */
  end(): Request | BadRequest | null {
    const line = this.#lines.end();
    return line === null ? null : decodeLine(line);
  }
}

/** The line of an answer. */
export function encodeResult(id: string, result: unknown): string {
  return `{"jsonrpc":"2.0","id":${id},"result":${JSON.stringify(result)}}\n`;
}

/** The line of an answer that is an error. */
export function encodeError(id: string, error: ErrorObject): string {
  return `{"jsonrpc":"2.0","id":${id},"error":${JSON.stringify(error)}}\n`;
}

/** The line of a notification. */
export function encodeNotification(method: string, params: unknown): string {
  return `{"jsonrpc":"2.0","method":"${method}","params":${JSON.stringify(params)}}\n`;
}

/** Longest line, in characters, in which the text of an odd number as id is looked for. */
const MAX_ODD_ID_LINE = 4_096;

function decodeLine(line: Line): Request | BadRequest {
  if (line === TOO_LONG) {
    return bad(NO_ID, INVALID_REQUEST, "The request is longer than 1 MiB; it was skipped");
  }
  if (line === NOT_UTF8) return bad(NO_ID, PARSE_ERROR, "The request is not UTF-8");
  if (isTooDeep(line)) {
    return bad(NO_ID, INVALID_REQUEST, `The request nests deeper than ${MAX_DEPTH} levels`);
  }
  let message: unknown;
  try {
    message = JSON.parse(line);
  } catch {
    return bad(NO_ID, PARSE_ERROR, "The line is not a JSON object; send one request a line");
  }
  if (Array.isArray(message)) {
    return bad(NO_ID, INVALID_REQUEST, "Batches are not taken; send each request on its own line");
  }
  if (typeof message !== "object" || message === null) {
    return bad(NO_ID, INVALID_REQUEST, "A request is a JSON object");
  }
  return decodeRequest(message, line);
}

function decodeRequest(
  message: { jsonrpc?: unknown; id?: unknown; method?: unknown; params?: unknown },
  line: string,
): Request | BadRequest {
  const id = idText(message.id, line);
  if (id === undefined) {
    return bad(NO_ID, INVALID_REQUEST, "The id must be a string, a number or null");
  }
  if (message.jsonrpc !== "2.0") {
    return bad(id ?? NO_ID, INVALID_REQUEST, 'The request must say "jsonrpc": "2.0"');
  }
  if (typeof message.method !== "string") {
    return bad(id ?? NO_ID, INVALID_REQUEST, "The request must name its method as a string");
  }
  return { kind: "request", id, method: message.method, params: message.params };
}

function bad(id: string, code: number, message: string): BadRequest {
  return { kind: "bad", id, error: { code, message } };
}

/** The id as JSON text, null where there is none, undefined where it is of another type. */
function idText(id: unknown, line: string): string | null | undefined {
  if (typeof id === "number") return isPlain(id, line) ? String(id) : idSource(line, id);
  if (typeof id === "string") return JSON.stringify(id);
  if (id === undefined) return null;
  return id === null ? NO_ID : undefined;
}

const ID_KEY = '"id"';

/** Whether the id stands in the line as we would write it, not as `1.0` or `1e0`: as nearly always. */
function isPlain(id: number, line: string): boolean {
  const at = line.indexOf(ID_KEY);
  // Where it is there twice, or not, the one that counts is not told by looking.
  if (at < 0 || line.indexOf(ID_KEY, at + 1) >= 0 || !Number.isSafeInteger(id)) return false;
  const text = String(id);
  let begin = at + ID_KEY.length;
  while (line[begin] === ":" || line[begin] === " ") begin++;
  const next = line[begin + text.length];
  return line.startsWith(text, begin) && (next === "," || next === "}");
}

/** The text of the id's number in `line`, whose top-level `id` is one. Undefined if it cannot be told. */
function idSource(line: string, id: number): string | undefined {
  // It costs much for a long line, and no client needs an odd number there.
  if (line.length > MAX_ODD_ID_LINE) return Number.isSafeInteger(id) ? String(id) : undefined;
  const sources = new Map<unknown, string>();
  function note(this: unknown, key: string, value: unknown, context?: { source?: string }) {
    if (key === "id" && context?.source !== undefined) sources.set(this, context.source);
    return value;
  }
  try {
    return sources.get(JSON.parse(line, note));
  } catch {
    // The reviver recurses, unlike plain parsing: too deeply nested to tell.
    return undefined;
  }
}
