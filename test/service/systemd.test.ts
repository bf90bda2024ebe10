/** The Debian package in a booted systemd: see test/service/systemd/inside.sh for the checks. */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dir, "../..");
const canBoot = process.getuid!() === 0 &&
  /^\S+ \S+ cgroup2 /m.test(readFileSync("/proc/mounts", "utf8"));

// Booting takes root, and a cgroup2 that is mounted somewhere.
test.skipIf(!canBoot)(
  "installed, started, upgraded, killed, hung, reloaded, restarted and stopped under load, activated, removed",
  async () => {
    const child = Bun.spawn([join(ROOT, "scripts/test-systemd")], {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    const [stdout, stderr] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    const failed = stdout.split("\n").filter((line) => line.startsWith("FAIL"));
    expect({ failed, exit: await child.exited, stderr: failed.length > 0 ? stderr : "" })
      .toEqual({ failed: [], exit: 0, stderr: "" });
    expect(Number(/^passed=(\d+) failed=0$/m.exec(stdout)?.[1])).toBeGreaterThan(60);
  },
  400_000,
);
