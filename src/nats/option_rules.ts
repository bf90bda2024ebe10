/**
 * What may be given to reach and use NATS. Checked with the flags, so that what can never work is told
 * at once, and again where the coordinator is started: one rule for both.
 * @module
 */

/** A server refuses a shorter MaxAge. In milliseconds. */
export const MIN_TTL_MS = 100;

/** NATS keeps at most five copies. */
export const MAX_REPLICAS = 5;

/** A server takes names of streams up to 255 characters, and the longer one is `KV_NAME-tenures`. */
const MAX_BUCKET_LENGTH = 255 - "KV_".length - "-tenures".length;

const MAX_NODE_LENGTH = 128;

/** Enough for a URL; it travels with each renewal of each lease. */
const MAX_ADDRESS_LENGTH = 1_024;

/** What {@linkcode isNodeName} asks for, for messages. */
export const NODE_NAME = `1 to ${MAX_NODE_LENGTH} printable ASCII characters without blanks`;

/** What {@linkcode isAddress} asks for, for messages. */
export const ADDRESS =
  `1 to ${MAX_ADDRESS_LENGTH} printable ASCII characters, with no blank at its ends`;

/** What {@linkcode isBucketName} asks for, for messages. */
export const BUCKET_NAME = `1 to ${MAX_BUCKET_LENGTH} of A-Z a-z 0-9 _ -`;

/** Whether `text` can name a node: it is a value in the bucket, and a part of names that servers list. */
export function isNodeName(text: string): boolean {
  return text.length <= MAX_NODE_LENGTH && /^[\x21-\x7e]+$/.test(text);
}

/** Whether `text` can be an address: a header ends at a line break, and is read without blanks around. */
export function isAddress(text: string): boolean {
  return text.length <= MAX_ADDRESS_LENGTH &&
    /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(text);
}

/** Whether a bucket can have this name. */
export function isBucketName(text: string): boolean {
  return text.length <= MAX_BUCKET_LENGTH && /^[-\w]+$/.test(text);
}

/** Whether `url` has credentials in it, which everybody on the host could see. */
export function carriesCredentials(url: string): boolean {
  return url.includes("@");
}

/** Whether `url` names a server: `nats://HOST`, `tls://HOST` or `HOST`, each with or without `:PORT`. */
export function isServerUrl(url: string): boolean {
  const place = /^(?:(?:nats|tls):\/\/)?([^/?#\\\s]+)\/?$/i.exec(url)?.[1];
  const match = /^(\[[0-9a-f:.]+\]|[^:]+)(?::(\d{1,5}))?$/i.exec(place ?? "");
  return match !== null && isHost(match[1]) && (match[2] === undefined || isPort(match[2]));
}

/** Whether `text` can be a host's name or address, as URLs have it; whether there is one, the network tells. */
export function isHost(text: string): boolean {
  return !/[@:/?#%\\\s]/.test(text.replace(/^\[.*\]$/, "")) && URL.canParse(`http://${text}`);
}

/** Whether `digits` are a port that one can connect to. */
export function isPort(digits: string): boolean {
  return Number(digits) >= 1 && Number(digits) <= 65_535;
}
