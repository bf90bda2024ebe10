/**
 * A store's log on a disk that all hosts share. It is only ever appended to, so that whoever writes
 * too late, or fails while writing, takes nothing from anybody.
 *
 * A record is one write(2) with O_APPEND, and whole in one line:
 *
 *   \nCHECKSUM EPOCH ID BODY      the body in base64: any bytes, and none of them ends a line
 *
 * The line break comes first: it ends what a host left that failed in the middle of a write. A line
 * counts if all of this is true, else readers skip it:
 *
 * 1. Its checksum is right. If not, it was torn, and never answered.
 * 2. No line that counts before it has a greater epoch. If one has, its writer had lost the lease
 *    between its commit-point check and its write.
 * 3. No line that counts before it has its id. If one has, it is the same write, made once more.
 *
 * Whether a line counts is decided by what stands before it, and that never changes. So it is for good
 * once it is known, whoever writes what later.
 *
 * What this takes: a file system that appends in one piece, as local ones do and NFS does not, and a
 * disk that keeps what it said was synced. Reading it all for each write is for an example.
 * @module
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname } from "node:path";

/** A write. */
export interface Entry {
  /** Its client's choice, without white space; the same whenever it is tried again. */
  readonly id: string;
  readonly body: Uint8Array<ArrayBuffer>;
}

/** Why a write is not in the log. */
export type LogFault =
  /** Its id is another write's. */
  | "taken"
  /** The disk had no room for all of it. */
  | "full"
  /** It came after a later holder's. */
  | "late";

/** The write was not made, and what is on the disk of it does not count. */
export class LogError extends Error {
  override readonly name = "LogError";
  readonly fault: LogFault;

  constructor(fault: LogFault, message: string, options?: ErrorOptions) {
    super(message, options);
    this.fault = fault;
  }
}

/** How an entry is written. */
export interface AppendOptions {
  /** The writer's: the fencing token. */
  readonly epoch: number;
  /** The commit-point check, right before the write; what it throws, nothing was written. */
  verify(): Promise<void>;
}

/**
 * Appends `entry`, unless it is there, and syncs it; returns how many count before it.
 *
 * @throws {LogError} if it was not made. What `verify` throws. Anything else (the disk failed to sync):
 * it may have been made; asked again with the same id, this tells.
 */
export async function append(
  path: string,
  entry: Entry,
  { epoch, verify }: AppendOptions,
): Promise<number> {
  const file = await open(path, "a");
  try {
    if (positionOf(entry, path) === null) {
      await verify();
      await writeWhole(file, encode(entry, epoch));
    }
    // What is found, too: its writer may have been killed before it came to this.
    await file.sync();
  } finally {
    await file.close();
  }
  await syncDirectory(dirname(path));
  // Only now is it known what stands before it: a late writer may have come in between.
  const position = positionOf(entry, path);
  if (position !== null) return position;
  throw new LogError(
    "late",
    `Cannot write ${entry.id}: the lease went while it was written, and another host has written ` +
      "since; try again",
  );
}

/** What counts, in order. */
export function readLog(path: string): Entry[] {
  const entries = new Map<string, Entry>();
  let newest = -Infinity;
  for (const line of readText(path).split("\n")) {
    const record = decode(line);
    if (record === null || record.epoch < newest || entries.has(record.id)) continue;
    newest = record.epoch;
    entries.set(record.id, record);
  }
  return [...entries.values()];
}

function positionOf({ id, body }: Entry, path: string): number | null {
  const entries = readLog(path);
  const position = entries.findIndex((entry) => entry.id === id);
  if (position < 0) return null;
  // To answer it as made would be a lie: what is there is another.
  if (!Buffer.from(body).equals(entries[position].body)) {
    throw new LogError("taken", `Cannot write ${id}: there is another write of that id`);
  }
  return position;
}

/** In one piece or not at all: what is left of a short write is a torn line. */
async function writeWhole(file: FileHandle, bytes: Uint8Array): Promise<void> {
  const full = (cause?: unknown) =>
    new LogError("full", "Cannot write: the disk is full; make room, and try again", { cause });
  let written: number;
  try {
    written = (await file.write(bytes)).bytesWritten;
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    // EFBIG: a limit on the file's size (RLIMIT_FSIZE).
    throw ["ENOSPC", "EDQUOT", "EFBIG"].includes(code) ? full(error) : error;
  }
  // Not continued: another host's record may stand behind it already.
  if (written < bytes.length) throw full();
}

/** A log that was just made is in its directory for good. */
async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function encode({ id, body }: Entry, epoch: number): Uint8Array {
  const text = `${epoch} ${id} ${Buffer.from(body).toString("base64")}`;
  return Buffer.from(`\n${checksum(text)} ${text}`);
}

function decode(line: string): Entry & { readonly epoch: number } | null {
  const [, sum, text, epoch, id, body] = /^(\w{64}) ((\d+) (\S+) (\S*))$/.exec(line) ?? [];
  if (sum === undefined || checksum(text) !== sum) return null;
  return { epoch: Number(epoch), id, body: Buffer.from(body, "base64") };
}

function checksum(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function readText(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return ""; // Nobody wrote yet.
    throw error;
  }
}
