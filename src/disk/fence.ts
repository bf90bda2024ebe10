/**
 * The fence line of a lock file: one line of JSON, padded with spaces to whole disk sectors.
 *
 * Why padded. A line is written over the last one by a single write of a whole number of sectors at
 * offset 0, its newline being its last byte. All lines that fit one sector (in practice all) are of
 * one length, so the file neither grows nor shrinks and its block stays the same: an overwrite
 * needs no space and cannot meet a full disk. A killed process cannot stop within such a copy into
 * one page of the page cache, and a disk writes a sector whole or not at all, so a crash of the
 * agent or of the machine leaves the last line or the new one, never a mixture, never a cut. Where
 * a longer line was, its end is cut off only after the new one is written, and a reader looks at
 * nothing after the first newline.
 *
 * What others write may be anything. A JSON object with an epoch fences at that epoch, whatever
 * else it lacks. Of a line that is no JSON, the highest complete `"epoch":N` counts: it may be a
 * line that was cut, and its epoch was real. Blanks and zeros, as a power failure may leave in a file
 * whose first line was not on disk yet, say nothing, and nor does the beginning of a line of ours.
 * Whatever else shows no epoch is somebody's data, which was not put there to be written over: perhaps
 * the lock path names a wrong file. It is refused.
 * @module
 */
import type { Fence } from "../ports/lock_file.ts";

/** The smallest unit that disks write whole. */
export const SECTOR_BYTES = 512;

/** As much of a lock file as is ever read, and the longest line that is written. */
export const MAX_LINE_BYTES = 4_096;

const NEWLINE = 0x0a;

/** A complete epoch: followed by what ends a member, so that a cut number does not pass as a lower one. */
const EPOCH = /"epoch"\s*:\s*(\d{1,16})\s*[,}]/g;

/**
 * Puts the bytes of a lock file that says `fence` at the beginning of `into`: one line, padded.
 * Returns how many they are; 0 when it would be longer than {@linkcode MAX_LINE_BYTES}, which `into`
 * has room for.
 */
export function formatFence(fence: Fence, into: Buffer): number {
  const { store, node, incarnation, epoch, pid, at } = fence;
  // Named one by one: in the contract's order, and nothing else that the object may carry.
  const line = JSON.stringify({ store, node, incarnation, epoch, pid, at });
  const bytes = Buffer.byteLength(line);
  const length = Math.ceil((bytes + 1) / SECTOR_BYTES) * SECTOR_BYTES;
  if (length > MAX_LINE_BYTES) return 0;
  return into.write(line + " ".repeat(length - 1 - bytes) + "\n");
}

/** The bytes of a lock file that says nothing yet, but has the room for a line; returns how many. */
export function formatBlank(into: Buffer): number {
  return into.write(" ".repeat(SECTOR_BYTES - 1) + "\n");
}

/** What a lock file's first bytes say; null when they show no epoch. Never throws. */
export function parseFence(bytes: Buffer): Fence | null {
  const line = firstLine(bytes);
  return fenceOf(parseObject(line)) ?? salvage(line);
}

/** The same, but null for a line that is not whole: of which nothing but an epoch could be believed. */
export function parseWholeFence(bytes: Buffer): Fence | null {
  return fenceOf(parseObject(firstLine(bytes)));
}

/** How every line begins that {@linkcode formatFence} makes. */
const BEGINNING = '{"store":"';

/** Whether the file holds something that is neither a fence nor what may be left of one. */
export function isForeign(bytes: Buffer): boolean {
  if (bytes.byteLength === 0 || parseFence(bytes) !== null) return false;
  const text = bytes.toString("utf8").replaceAll("\0", " ").trim();
  return !text.startsWith(BEGINNING) && !BEGINNING.startsWith(text);
}

function firstLine(bytes: Buffer): string {
  const end = bytes.indexOf(NEWLINE);
  return bytes.toString("utf8", 0, end < 0 ? bytes.byteLength : end).trim();
}

function parseObject(line: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" ? value as Record<string, unknown> | null : null;
  } catch {
    return null;
  }
}

/** A fence from an object with at least an epoch; null otherwise. */
function fenceOf(object: Record<string, unknown> | null): Fence | null {
  if (!object) return null;
  // Also one too large to be exact: it is higher than any of ours, and that is all we ask.
  if (!Number.isInteger(object.epoch) || (object.epoch as number) < 0) return null;
  return {
    store: text(object.store),
    node: text(object.node),
    incarnation: text(object.incarnation),
    epoch: object.epoch as number,
    pid: Number.isSafeInteger(object.pid) ? object.pid as number : 0,
    at: text(object.at),
  };
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The highest complete epoch of a line that is not JSON; the rest of such a line is not believed. */
function salvage(line: string): Fence | null {
  const epochs = [...line.matchAll(EPOCH)].map((match) => Number(match[1]));
  if (epochs.length === 0) return null;
  return { store: "", node: "", incarnation: "", epoch: Math.max(...epochs), pid: 0, at: "" };
}
