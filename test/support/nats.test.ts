import { describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { natsServerPath } from "./nats.ts";
import { until } from "./wait.ts";

const SCRIPT = new URL("../../scripts/nats-server", import.meta.url).pathname;

function run(args: string[], env: Record<string, string> = {}) {
  const result = Bun.spawnSync([SCRIPT, ...args], { env: { ...process.env, ...env } });
  return { code: result.exitCode, out: result.stdout.toString(), err: result.stderr.toString() };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe("scripts/nats-server", () => {
  test("prints the path of a server of at least 2.12, and nothing else", () => {
    const { code, out } = run([]);
    expect([code, out.trim().split("\n").length]).toEqual([0, 1]);
    const version = Bun.spawnSync([out.trim(), "--version"]).stdout.toString();
    const [, major, minor] = /v(\d+)\.(\d+)/.exec(version)?.map(Number) ?? [];
    expect([major, minor >= 12 || major > 2]).toEqual([2, true]);
  });

  test("prints $NATS_SERVER when it is fit, and says so when it is not", () => {
    const fit = natsServerPath();
    expect(run([], { NATS_SERVER: fit })).toEqual({ code: 0, out: fit + "\n", err: "" });
    const unfit = run([], { NATS_SERVER: natsServerPath("bookworm") });
    expect([unfit.code, unfit.out]).toEqual([1, ""]);
    expect(unfit.err).toContain("2.12 or newer");
  });

  test("refuses arguments that it does not know", () => {
    expect(run(["--sweet"]).code).toBe(64);
    expect(run(["--suite", "../x"]).code).toBe(64);
  });

  test("fetches once when several ask at the same time", async () => {
    const cache = mkdtempSync(join(tmpdir(), "nats-cache-"));
    try {
      const env = { ...process.env, XDG_CACHE_HOME: cache };
      const runs = await Promise.all(Array.from({ length: 3 }, async () => {
        const child = Bun.spawn([SCRIPT, "--suite", "bookworm"], {
          env,
          stdout: "pipe",
          stderr: "pipe",
        });
        return [await new Response(child.stdout).text(), await new Response(child.stderr).text()];
      }));
      expect(new Set(runs.map(([out]) => out)).size).toBe(1);
      expect(runs.filter(([, err]) => err.includes("fetching"))).toHaveLength(1);
    } finally {
      rmSync(cache, { recursive: true, force: true });
    }
  }, 120_000);
});

describe("NatsServer", () => {
  test("ends with the test process, also when that is killed", async () => {
    const child = Bun.spawn([
      process.execPath,
      "-e",
      `import { NatsServer } from ${JSON.stringify(new URL("./nats.ts", import.meta.url).pathname)};
       const server = await NatsServer.start();
       server.freeze();
       console.log(JSON.stringify([server.pid, server.dir]));
       await new Promise(() => {});`,
    ], { stdout: "pipe" });
    const { value } = await child.stdout.getReader().read();
    const [pid, dir] = JSON.parse(new TextDecoder().decode(value)) as [number, string];
    expect([isAlive(pid), existsSync(dir)]).toEqual([true, true]);
    child.kill("SIGKILL");
    await until("the server is gone with its directory", () => !isAlive(pid) && !existsSync(dir));
  }, 60_000);
});
