/**
 * The bytes on the wire: subjects and headers of KV writes, and what the answers mean. As nats.go's
 * KV clients write and read them, so that they can share a bucket.
 * @module
 */
import type { EntryRead, Outcome, TenureRead } from "../ports/coordinator.ts";
import { parseTenure, parseTtl, TTL_HEADER } from "./records.ts";
import type { Reply } from "./reply_reader.ts";

/**
 * Conflicts. The first carries the key's newest revision in its text; replicated streams often answer the
 * second, with no number.
 */
const WRONG_LAST_SEQUENCE = 10071;
const WRONG_LAST_SEQUENCE_UNKNOWN = 10164;
/** There is nothing under the key, or in the stream. */
export const NO_MESSAGE_FOUND = 10037;
/** The status of an answer where nobody listens. */
const NO_RESPONDERS = 503;

/** Longest node name kept of an entry that another program wrote: enough to recognise it in a log. */
const MAX_NODE_LENGTH = 255;

const decoder = new TextDecoder();

/** Makes the headers of compare-and-set writes that differ in nothing but the expected revision. */
export class HeaderTemplate {
  readonly #tail: string;

  /** @param extra further headers, without line breaks in names or values */
  constructor(extra: Readonly<Record<string, string>> = {}) {
    const lines = Object.entries(extra).map(([name, value]) => `\r\n${name}: ${value}`);
    this.#tail = lines.join("") + "\r\n\r\n";
  }

  /** The whole block. */
  expecting(revision: number): string {
    return "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: " + revision + this.#tail;
  }
}

/** The subject prefix of a bucket's keys, with its last dot. */
export function keyPrefix(bucket: string): string {
  return `$KV.${bucket}.`;
}

/** The stream behind a bucket. */
export function streamOf(bucket: string): string {
  return `KV_${bucket}`;
}

/** Where the stream's leader is asked for a message: never a follower, as direct gets would be. */
export function readSubject(bucket: string): string {
  return `$JS.API.STREAM.MSG.GET.${streamOf(bucket)}`;
}

interface ApiAnswer {
  readonly seq?: number;
  readonly error?: { readonly err_code?: number; readonly code?: number; description?: string };
  readonly message?: StoredMessage;
}

/** A message as the stream's leader reads it out. */
interface StoredMessage {
  readonly seq: number;
  readonly subject: string;
  readonly hdrs?: string;
  readonly data?: string;
}

type Unknown = Extract<Outcome<never>, { kind: "unknown" }>;

function unknown(reason: string): Unknown {
  return { kind: "unknown", reason };
}

/** Parses an answer of JetStream, or tells why there is none. */
function parseAnswer(reply: Reply): ApiAnswer | Unknown {
  if (reply.text === "") {
    return reply.status === NO_RESPONDERS
      ? unknown("the bucket has no leader now, or does not exist (no responders)")
      : unknown("the coordinator answered with an empty message");
  }
  try {
    return JSON.parse(reply.text) as ApiAnswer;
  } catch {
    return unknown("the coordinator's answer is not JSON");
  }
}

function explain(error: NonNullable<ApiAnswer["error"]>): Unknown {
  return unknown(`the coordinator answered: ${error.description} (${error.err_code})`);
}

/** The answer to a compare-and-set write: the new revision, a conflict, or unknown. */
export function decodeWrite(reply: Reply): Outcome<number> {
  const answer = parseAnswer(reply);
  if ("kind" in answer) return answer;
  const { error, seq } = answer;
  if (error === undefined) {
    return typeof seq === "number"
      ? { kind: "ok", value: seq }
      : unknown("the coordinator's acknowledgement carries no revision");
  }
  if (error.err_code === WRONG_LAST_SEQUENCE) {
    const match = /wrong last sequence: (\d+)/.exec(error.description ?? "");
    return match === null
      ? { kind: "conflict" }
      : { kind: "conflict", lastRevision: Number(match[1]) };
  }
  if (error.err_code === WRONG_LAST_SEQUENCE_UNKNOWN) return { kind: "conflict" };
  return explain(error);
}

/** The answer to a read: the stored message, or null where there is none. */
function decodeRead(reply: Reply): Outcome<StoredMessage | null> {
  const answer = parseAnswer(reply);
  if ("kind" in answer) return answer;
  if (answer.error !== undefined) {
    return answer.error.err_code === NO_MESSAGE_FOUND
      ? { kind: "ok", value: null }
      : explain(answer.error);
  }
  return answer.message === undefined
    ? unknown("the coordinator's answer carries no message")
    : { kind: "ok", value: answer.message };
}

/** The answer to a read of the lease bucket. */
export function decodeEntry(reply: Reply): Outcome<EntryRead> {
  const read = decodeRead(reply);
  if (read.kind !== "ok") return read;
  return { kind: "ok", value: read.value === null ? { kind: "none" } : entryOf(read.value) };
}

/** The answer to a read of the tenures bucket: the revision found, or null where there is none. */
export function decodeRevision(reply: Reply): Outcome<TenureRead | null> {
  const read = decodeRead(reply);
  if (read.kind !== "ok") return read;
  return { kind: "ok", value: read.value === null ? null : tenureOf(read.value) };
}

/** The answer to a read of a store's newest tenure record, which tells of its holder's TTL, too. */
export function decodeTenure(reply: Reply): Outcome<TenureRead> {
  const read = decodeRead(reply);
  if (read.kind !== "ok") return read;
  if (read.value === null) return { kind: "ok", value: { revision: 0, record: null } };
  const headers = headersOf(read.value);
  const { revision, record } = tenureOf(read.value, headers);
  const ttlMs = parseTtl(headers.get(TTL_HEADER.toLowerCase()));
  return { kind: "ok", value: { revision, record: record && { ...record, ttlMs } } };
}

function entryOf(message: StoredMessage): EntryRead {
  const headers = headersOf(message);
  if (isMarker(headers)) return { kind: "tombstone", revision: message.seq };
  return {
    kind: "entry",
    revision: message.seq,
    node: decoder.decode(dataOf(message)).slice(0, MAX_NODE_LENGTH),
    incarnation: headers.get("zit-incarnation") ?? null,
    address: headers.get("zit-address") ?? null,
  };
}

function tenureOf(message: StoredMessage, headers = headersOf(message)): TenureRead {
  const record = isMarker(headers) ? null : parseTenure(dataOf(message));
  return { revision: message.seq, record };
}

/** A deletion or purge by any KV client, or what a server leaves when it expires a key. */
function isMarker(headers: ReadonlyMap<string, string>): boolean {
  const operation = headers.get("kv-operation");
  return operation === "DEL" || operation === "PURGE" || headers.has("nats-marker-reason");
}

function dataOf(message: StoredMessage): Uint8Array {
  return Buffer.from(message.data ?? "", "base64");
}

/** The first value of each header, by lower-case name. */
function headersOf(message: StoredMessage): Map<string, string> {
  const headers = new Map<string, string>();
  if (message.hdrs === undefined) return headers;
  const [, ...lines] = Buffer.from(message.hdrs, "base64").toString("utf8").split("\r\n");
  for (const line of lines) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const name = line.slice(0, colon).toLowerCase();
    if (!headers.has(name)) headers.set(name, line.slice(colon + 1).trim());
  }
  return headers;
}
