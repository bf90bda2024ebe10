/** The forge's log: nothing that was answered is lost or doubled, whatever else is on the disk. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { appendFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bun } from "../support/child.ts";
import { noSmallDisk, smallDisk } from "../support/small_disk.ts";
import { tempDir } from "../support/temp_dir.ts";
import { append, type Entry, LogError, readLog } from "./forge/log.ts";

let directory: ReturnType<typeof tempDir>;
let log: string;
beforeEach(() => {
  directory = tempDir();
  log = join(directory.path, "log");
});
afterEach(() => directory[Symbol.dispose]());

/** Appends a text in that epoch; `verify` is what happens right before the write. */
function write(
  id: string,
  options: { epoch?: number; body?: string; path?: string; verify?: () => Promise<void> } = {},
): Promise<number> {
  const { epoch = 1, body = `text of ${id}`, path = log } = options;
  const verify = options.verify ?? (() => Promise.resolve());
  return append(path, { id, body: Buffer.from(body) }, { epoch, verify });
}

function ids(path = log): string[] {
  return readLog(path).map(({ id }) => id);
}

async function faultOf(writing: Promise<number>): Promise<string> {
  const error = await writing.then(() => null, (error) => error);
  expect(error).toBeInstanceOf(LogError);
  return (error as LogError).fault;
}

describe("append()", () => {
  test("keeps any bytes, in order, also behind whatever is torn", async () => {
    const parts = fc.array(
      fc.oneof(
        fc.uint8Array({ maxLength: 50 }).map((body) => ({ body: Buffer.from(body) })),
        // So many bytes of the next record are all that its writer came to.
        fc.nat(200).map((cut) => ({ cut })),
      ),
      { maxLength: 20 },
    );
    await fc.assert(
      fc.asyncProperty(parts, async (parts) => {
        writeFileSync(log, "");
        const made: Entry[] = [];
        for (const [i, part] of parts.entries()) {
          const options = { epoch: i, verify: () => Promise.resolve() };
          if ("body" in part) {
            const entry = { id: `id-${i}`, body: part.body };
            expect(await append(log, entry, options)).toBe(made.push(entry) - 1);
          } else {
            const whole = join(directory.path, "whole");
            writeFileSync(whole, "");
            await append(whole, { id: `torn-${i}`, body: Buffer.alloc(120, i) }, options);
            const bytes = readFileSync(whole);
            appendFileSync(log, bytes.subarray(0, Math.min(part.cut, bytes.length - 1)));
          }
          const there = readLog(log).map(({ id, body }) => ({ id, body: Buffer.from(body) }));
          expect(there).toEqual(made as typeof there);
        }
      }),
      { numRuns: 50 },
    );
  });

  test("answers a repeated write as before, and makes it once", async () => {
    expect(await write("a")).toBe(0);
    expect(await write("b")).toBe(1);
    const before = readFileSync(log);
    const verify = () => Promise.reject(new Error("there is nothing to verify for"));
    expect(await write("a", { epoch: 2, verify })).toBe(0);
    expect(readFileSync(log)).toEqual(before);
  });

  test("makes a write once that two hosts make at once", async () => {
    await write("first");
    // The other one's comes between the look-up and the write: later in the same tenure, or of a new one.
    for (const epoch of [1, 2]) {
      const id = `twice-${epoch}`;
      const verify = async () => expect(await write(id, { epoch })).toBe(epoch);
      expect(await write(id, { verify, epoch: 2 })).toBe(epoch);
    }
    expect(ids()).toEqual(["first", "twice-1", "twice-2"]);
  });

  test("refuses another write of the same id, and keeps what is there", async () => {
    await write("a");
    expect(await faultOf(write("a", { body: "another" }))).toBe("taken");
    // Also when that one comes between the look-up and the write.
    const verify = async () => void await write("b");
    expect(await faultOf(write("b", { body: "another", verify }))).toBe("taken");
    expect(readLog(log).map(({ body }) => Buffer.from(body).toString()))
      .toEqual(["text of a", "text of b"]);
  });

  test("skips what a displaced writer writes late, and tells it", async () => {
    await write("a", { epoch: 10 });
    const verify = async () => void await write("b", { epoch: 20 });
    expect(await faultOf(write("late", { epoch: 10, verify }))).toBe("late");
    expect(ids()).toEqual(["a", "b"]);
    // Asked again, where the store is held: made, since it was not there.
    expect(await write("late", { epoch: 20 })).toBe(2);
    expect(ids()).toEqual(["a", "b", "late"]);
  });

  test("keeps a late write that came before any of a later holder", async () => {
    await write("a", { epoch: 10 });
    expect(await write("late", { epoch: 10 })).toBe(1);
    // Tried again at the new holder, which looked before it came: found after the write.
    const verify = async () => void await write("later", { epoch: 10 });
    expect(await write("later", { epoch: 20, verify })).toBe(2);
    expect(ids()).toEqual(["a", "late", "later"]);
  });

  test("writes nothing when the commit-point check fails", async () => {
    const verify = () => Promise.reject(new Error("the lease went"));
    await expect(write("a", { verify })).rejects.toThrow("the lease went");
    expect(readFileSync(log, "utf8")).toBe("");
  });

  test("loses nothing that was answered when its writers are killed", async () => {
    const answered: string[] = [];
    for (let i = 0; i < 8; i++) {
      await using writer = bun(join(import.meta.dir, "support/endless_writer.ts"), [
        log,
        `w${i}`,
        "200000",
      ]);
      answered.push(await writer.line());
      // In the middle of whatever it does by then.
      await Bun.sleep(i);
      await writer.kill();
      expect(await write(`between-${i}`)).toBe(readLog(log).length - 1);
      answered.push(`between-${i}`);
    }
    const there = ids();
    expect(answered.filter((id) => there.filter((other) => other === id).length !== 1)).toEqual([]);
    for (const { id, body } of readLog(log)) {
      if (id.startsWith("w")) expect(Buffer.from(body)).toEqual(Buffer.alloc(200_000, id));
    }
  });

  test.skipIf(noSmallDisk !== null)(
    "skips what a full disk took in part, and goes on when there is room",
    async () => {
      using disk = smallDisk(64 * 1_024);
      const path = join(disk.path, "log");
      const ballast = join(disk.path, "ballast");
      writeFileSync(ballast, Buffer.alloc(32 * 1_024));
      expect(await write("a", { path })).toBe(0);
      const body = "x".repeat(64 * 1_024);
      expect(await faultOf(write("big", { path, body }))).toBe("full");
      expect(readFileSync(path).length).toBeGreaterThan(4_096); // A part of it is there.
      // Now not a byte more is taken.
      expect(await faultOf(write("b", { path }))).toBe("full");
      expect(ids(path)).toEqual(["a"]);
      expect(await write("a", { path })).toBe(0);
      rmSync(ballast);
      expect(await write("b", { path })).toBe(1);
      expect(ids(path)).toEqual(["a", "b"]);
    },
  );
});
