import { expect, test } from "bun:test";
import { appendFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { LogMap, type LogMapOptions } from "../../src/disk/log_map.ts";
import { child } from "../support/child.ts";
import { noSmallDisk, smallDisk } from "../support/small_disk.ts";
import { tempDir } from "../support/temp_dir.ts";

const NUMBERS: LogMapOptions<number> = {
  boot: "boot-1",
  durable: false,
  decode: (value) => typeof value === "number" ? value : null,
};

function contents<V>(map: LogMap<V>): Record<string, V> {
  return Object.fromEntries([...map.entries].map(([key, { value }]) => [key, value]));
}

test("LogMap() remembers what was set and deleted, and in which boot", () => {
  using dir = tempDir();
  const path = join(dir.path, "map");
  const first = LogMap.open(path, NUMBERS);
  first.set("a", 1);
  first.set("b", 2);
  first.set("a", 3);
  first.delete("b");
  first.delete("never");
  first.close();
  const second = LogMap.open(path, { ...NUMBERS, boot: "boot-2" });
  second.set("c", 4);
  second.close();
  const third = LogMap.open(path, { ...NUMBERS, boot: "boot-2" });
  expect([...third.entries]).toEqual([
    ["a", { value: 3, boot: "boot-1" }],
    ["c", { value: 4, boot: "boot-2" }],
  ]);
  expect([third.damage, third.problem]).toEqual([[], null]);
  third.close();
});

test("LogMap() says in the log which boot it is after a rewrite, too", () => {
  using dir = tempDir();
  const path = join(dir.path, "map");
  const old = LogMap.open(path, NUMBERS);
  old.set("a", 1);
  old.set("b", 1);
  old.close();
  const map = LogMap.open(path, { ...NUMBERS, boot: "boot-2" });
  map.set("c", 2);
  map.retain((_, key) => key !== "a"); // what is left may end with an entry of another boot
  map.set("d", 3);
  map.delete("c");
  map.delete("d");
  map.retain(() => true);
  map.retain((_, key) => key !== "x");
  map.set("e", 4);
  map.close();
  const again = LogMap.open(path, { ...NUMBERS, boot: "boot-2" });
  expect([...again.entries]).toEqual([
    ["b", { value: 1, boot: "boot-1" }],
    ["e", { value: 4, boot: "boot-2" }],
  ]);
  again.close();
});

test("LogMap() keeps the newest when there are more than the limit", () => {
  using dir = tempDir();
  const path = join(dir.path, "map");
  const map = LogMap.open(path, NUMBERS);
  for (let i = 0; i < 10; i++) map.set(`k${i}`, i);
  map.set("k0", 10); // and so is newer than the others
  map.close();
  const again = LogMap.open(path, { ...NUMBERS, limit: 3 });
  expect(contents(again)).toEqual({ k8: 8, k9: 9, k0: 10 });
  again.close();
});

test("LogMap() forgives a cut last line, names other lines that it cannot read", () => {
  using dir = tempDir();
  const path = join(dir.path, "map");
  const whole = '{"boot":"boot-1"}\n{"key":"a","value":1}\n{"key":"b","value":2}\n';
  for (let cut = 0; cut <= whole.length; cut++) {
    writeFileSync(path, whole.slice(0, cut));
    const map = LogMap.open(path, NUMBERS);
    expect(map.damage).toEqual([]);
    const lines = whole.slice(0, cut + 1).split("\n").length - 1;
    const states: Record<string, number>[] = [{}, {}, { a: 1 }, { a: 1, b: 2 }];
    const expected = states[cut === whole.length ? 3 : lines]!;
    expect(contents(map)).toEqual(expected);
    map.close();
  }
  const bad = ["x", "", "5", "null", "\0\0\0", '{"key":5}', '{"key":"c","value":"text"}'];
  writeFileSync(path, whole + bad.map((line) => line + "\n").join("") + '{"key":"d","value":4}\n');
  const map = LogMap.open(path, NUMBERS);
  expect(map.damage).toEqual(bad.map((_, index) => `${path}:${index + 4}: cannot be read`));
  expect(contents(map)).toEqual({ a: 1, b: 2, d: 4 });
  map.close();
});

test("LogMap() stays small however often entries come and go", () => {
  using dir = tempDir();
  const path = join(dir.path, "map");
  const map = LogMap.open(path, NUMBERS);
  for (let i = 0; i < 10; i++) map.set(`stays-${i}`, i);
  let largest = 0;
  for (let i = 0; i < 50_000; i++) {
    map.set(`key-${i}-${"x".repeat(40)}`, i);
    map.delete(`key-${i}-${"x".repeat(40)}`);
    if (i % 500 === 0) largest = Math.max(largest, statSync(path).size);
  }
  expect(largest).toBeGreaterThan(512 * 1024);
  expect(largest).toBeLessThan(1_100 * 1024);
  map.close();
  const again = LogMap.open(path, NUMBERS);
  expect(again.entries.size).toBe(10);
  again.close();
  expect(statSync(path).size).toBeLessThan(1_024);
});

test("LogMap() has every set that returned when the process is killed at any time", async () => {
  using dir = tempDir();
  const module = JSON.stringify(import.meta.resolve("../../src/disk/log_map.ts"));
  for (let run = 0; run < 5; run++) {
    const path = join(dir.path, `map-${run}`);
    await using writer = child([
      process.execPath,
      "-e",
      `import { LogMap } from ${module};
       import { writeSync } from "node:fs";
       const map = LogMap.open(${
        JSON.stringify(path)
      }, { boot: "b", durable: false, decode: (v) => v });
       for (let i = 0; ; i++) {
         map.set("k" + i, i);
         map.delete("k" + (i - 50));
         if (i % 1000 === 0) writeSync(1, i + "\\n");
       }`,
    ]);
    for (let i = 0; i < 20 + run; i++) await writer.line();
    const reported = Number(await writer.line());
    await writer.kill();
    const map = LogMap.open(path, { ...NUMBERS, boot: "b" });
    const keys = [...map.entries.values()].map(({ value }) => value);
    expect(map.damage).toEqual([]);
    expect(keys.length).toBeGreaterThanOrEqual(49);
    expect(keys.length).toBeLessThanOrEqual(51);
    expect(keys.at(-1)).toBeGreaterThanOrEqual(reported);
    expect(keys).toEqual(keys.map((_, index) => keys[0]! + index));
    map.close();
  }
}, 20_000);

test.skipIf(noSmallDisk !== null)(
  "LogMap() keeps the truth in memory while the disk is full, and writes it down after",
  () => {
    using disk = smallDisk(512 * 1024);
    const path = join(disk.path, "map");
    const map = LogMap.open(path, NUMBERS);
    map.set("a", 1);
    map.set("b", 2);
    disk.fill();
    const long = "k".repeat(5_000);
    expect(map.set(long, 3)).toMatch(/no space left on device/);
    expect(map.problem).toMatch(/no space left on device/);
    map.setLater(long + long, 4);
    expect(map.flush()).toMatch(/no space left on device/);
    map.forget(long + long);
    expect(contents(map)).toEqual({ a: 1, b: 2, [long]: 3 });
    // There is room for this line, but none to write down the rest: still a problem, not of this call.
    expect(map.delete("a")).toBeNull();
    expect(map.problem).toMatch(/ENOSPC/);
    disk.empty();
    // A rewrite that failed is not repeated for each line, but soon.
    for (let i = 0; map.problem !== null; i++) {
      expect(map.set("b", i)).toBeNull();
      if (i > 5_000) throw new Error("never put right");
    }
    const now = contents(map);
    map.close();
    const again = LogMap.open(path, NUMBERS);
    expect(contents(again)).toEqual(now);
    expect(now).toHaveProperty(long, 3);
    expect(now).not.toHaveProperty("a");
    again.close();
  },
);

test("LogMap() opens a log that another program has cut or lengthened", () => {
  using dir = tempDir();
  const path = join(dir.path, "map");
  const map = LogMap.open(path, NUMBERS);
  map.set("a", 1);
  map.close();
  appendFileSync(path, '{"key":"b","value":2}');
  const again = LogMap.open(path, NUMBERS);
  expect(contents(again)).toEqual({ a: 1, b: 2 });
  again.close();
});

test("LogMap() says in the log which boot it is after a rewrite that ends with another boot's", () => {
  using dir = tempDir();
  const path = join(dir.path, "map");
  const old = LogMap.open(path, NUMBERS);
  old.set("a", 1);
  old.close();
  const map = LogMap.open(path, { ...NUMBERS, boot: "boot-2" });
  map.set("b", 2);
  map.retain((_, key) => key === "a");
  map.set("c", 3);
  map.close();
  const again = LogMap.open(path, { ...NUMBERS, boot: "boot-2" });
  expect([...again.entries]).toEqual([
    ["a", { value: 1, boot: "boot-1" }],
    ["c", { value: 3, boot: "boot-2" }],
  ]);
  again.close();
});
