import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { child } from "../support/child.ts";

test("bootTimeMs() reads what the kernel calls uptime", () => {
  const before = bootTimeMs();
  const uptimeMs = Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]) * 1_000;
  const after = bootTimeMs();
  expect(uptimeMs).toBeGreaterThanOrEqual(before - 10); // uptime is told in hundredths of a second
  expect(uptimeMs).toBeLessThanOrEqual(after);
});

test("bootTimeMs() never goes back and has a fraction", () => {
  let last = bootTimeMs();
  let fractions = 0;
  for (let i = 0; i < 100_000; i++) {
    const now = bootTimeMs();
    if (now < last) throw new Error(`went from ${last} to ${now}`);
    if (now % 1 !== 0) fractions++;
    last = now;
  }
  expect(fractions).toBeGreaterThan(50_000);
});

test("bootTimeMs() is CLOCK_BOOTTIME, not CLOCK_MONOTONIC, when the two are apart", async () => {
  // In a time namespace only CLOCK_BOOTTIME is moved on, as a suspend does.
  const script = `import { bootTimeMs } from ${
    JSON.stringify(import.meta.resolve("../../src/sys/boot_time.ts"))
  };
    console.log(bootTimeMs());`;
  const command = ["unshare", "--time", "--boottime", "1000000", process.execPath, "-e", script];
  const before = bootTimeMs();
  await using moved = child(command);
  const there = Number(await moved.line());
  const after = bootTimeMs();
  expect(there).toBeGreaterThanOrEqual(before + 1e9);
  expect(there).toBeLessThanOrEqual(after + 1e9);
});
