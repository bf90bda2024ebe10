/**
 * Agents and guards that are killed: what the next agent of the host knows, and what the lock does.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { openSocket } from "../../src/client/connect.ts";
import { requestLocked } from "../../src/cli/guard/locked_grant.ts";
import { python } from "../support/child.ts";
import { again, fleet, guardOne, SharedLog } from "../support/fleet.ts";
import { faultsOf } from "../support/kill_storm.ts";
import { NatsServer } from "../support/nats.ts";
import { type RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";
import { isRunning } from "../support/running.ts";
import { until } from "../support/wait.ts";

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** A client process that holds a grant until it is killed, and says so; its lock is not passed. */
const HOLDER = `
import json, socket, sys, time
agent = socket.socket(socket.AF_UNIX); agent.connect(sys.argv[1])
params = {"store": "one", "pass_lock": len(sys.argv) > 2}
agent.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "guard", "params": params}).encode() + b"\\n")
answer, fds, _, _ = socket.recv_fds(agent, 65536, 1)
print(json.loads(answer)["result"]["epoch"], len(fds)); time.sleep(1000)`;

function lockFree(agent: RealAgent): boolean {
  const lock = join(agent.locks, "one", "lease.lock");
  return Bun.spawnSync(["flock", "-n", lock, "true"]).exitCode === 0;
}

test("an agent killed while no client lives grants again at once, as a new tenure (client-go#448)", async () => {
  const start = fleet(server.url, 30_000);
  await using first = await start("alpha");
  await using holder = python(HOLDER, first.socket);
  const epoch = Number((await holder.line()).split(" ")[0]);
  await holder.kill();
  await first.end("SIGKILL");
  const startedMs = performance.now();
  await using second = await start("alpha", again(first));
  const grant = await (await second.client()).call("guard", { store: "one" });
  // The TTL is 30 s: nothing aged out, nobody waited for a grace.
  expect(performance.now() - startedMs).toBeLessThan(10_000);
  expect(grant.epoch).toBeGreaterThan(epoch);
  const ready = await second.logged("ready");
  const granted = await second.logged("granted");
  expect(Date.parse(granted.time) - Date.parse(ready.time)).toBeLessThan(1_000);
});

test("a restarted agent waits for the clients of the killed one, and no longer (sanlock#1)", async () => {
  const start = fleet(server.url, 30_000);
  await using first = await start("alpha");
  await using holder = python(HOLDER, first.socket);
  await holder.line();
  await first.end("SIGKILL");
  await using second = await start("alpha", again(first));
  const client = await second.client();
  const { kind, error } = await refusal(client.call("guard", { store: "one" }));
  expect(kind).toBe("grace");
  expect(error.retryAfterMs).toBeLessThanOrEqual(1_000);
  expect(error.message).toContain("still runs");
  expect((await client.call("held", { store: "one" })).held).toBe(false);
  // While it lives the store is not given to another node either.
  const waiting = client.call("guard", { store: "one", wait_ms: 20_000 });
  await until("it waits", async () => (await client.call("status", {})).counts.waiters === 1);
  const killedAt = Date.now();
  await holder.kill();
  expect((await waiting).store).toBe("one");
  const granted = await second.logged("granted");
  expect(Date.parse(granted.time) - killedAt).toBeLessThan(5_000);
});

/** A client that connects and is granted, and leaves the connection to a child of it. */
const HEIR = `
import json, os, socket, sys, time
agent = socket.socket(socket.AF_UNIX); agent.connect(sys.argv[1])
ask = {"jsonrpc": "2.0", "id": 1, "method": "guard", "params": {"store": "one"}}
agent.sendall(json.dumps(ask).encode() + b"\\n"); agent.recv(65536)
if os.fork(): os._exit(0)
print(os.getpid()); time.sleep(1000)`;

test("a restarted agent waits for whoever has a client's connection, though the client is gone", async () => {
  const start = fleet(server.url, 30_000);
  await using first = await start("alpha");
  await using client = python(HEIR, first.socket);
  const heir = Number(await client.line());
  reap(heir);
  await client.ended();
  // The connection is open, so the grant lives.
  expect((await runClient(first, ["guard", "one", "--", "true"])).status).toBe(75);
  await first.end("SIGKILL");
  await using second = await start("alpha", again(first));
  const refused = await runClient(second, ["guard", "one", "--", "true"]);
  expect([refused.status, refused.stderr]).toEqual([75, expect.stringContaining("still runs")]);
  process.kill(heir, "SIGKILL");
  // The TTL is 30 s: a grace would not be over.
  const granted = await runClient(second, ["guard", "one", "--wait", "10s", "--", "true"]);
  expect([granted.status, granted.stderr]).toEqual([0, ""]);
});

test("a client that lives on is waited for until its deadline, once; a grace of 0 changes nothing", async () => {
  const ttlMs = 3_000;
  const start = fleet(server.url, ttlMs);
  await using first = await start("alpha", { flags: ["--grace", "0s"] });
  await using holder = python(HOLDER, first.socket);
  await holder.line();
  await first.end("SIGKILL");
  await using second = await start("alpha", { ...again(first), flags: ["--grace", "0s"] });
  const client = await second.client();
  expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("grace");
  const { token } = await client.call("guard", { store: "one", wait_ms: 20_000 });
  const acquired = await second.logged("acquired");
  const granted = await second.logged("granted");
  expect(Date.parse(granted.time) - Date.parse(acquired.time)).toBeGreaterThanOrEqual(ttlMs - 50);
  expect(isRunning(holder.pid)).toBe(true);
  await client.call("release", { token });
  await second.end("SIGKILL");
  // Its deadline is past: the next agent owes it nothing, however long it lives.
  await using third = await start("alpha", { ...again(first), flags: ["--grace", "0s"] });
  expect((await (await third.client()).call("guard", { store: "one" })).store).toBe("one");
});

test("what a killed guard left running delays a clean release, also by a restarted agent (kubernetes#139991)", async () => {
  const start = fleet(server.url, 4_000);
  const log = new SharedLog();
  await using first = await start("alpha", { flags: ["--grace", "0s", "--drain", "200ms"] });
  await using beta = await start("beta", { flags: ["--grace", "0s"] });
  const guard = log.writeStubbornly(first, 10_000);
  await log.writtenBy("alpha");
  guard.kill("SIGKILL");
  await guard.exited;
  await first.end("SIGKILL");
  await using second = await start("alpha", {
    ...again(first),
    flags: ["--grace", "0s", "--drain", "200ms"],
  });
  // Its lock tells that the command still runs.
  const { status, stderr } = await runClient(second, ["guard", "one", "--", "true"]);
  expect(status).toBe(75);
  expect(stderr).toContain("still runs");
  expect(await second.end("SIGTERM")).toBe(0);
  expect(second.log().find((line) => line.event === "drained")?.remaining).toBe(1);
  const next = log.write(beta, 20, ["--wait-lease", "--wait", "30s"]);
  expect([await next.exited, await next.stderr]).toEqual([0, ""]);
  expect(faultsOf(log.text)).toEqual([]);
  expect(lockFree(second)).toBe(true);
});

test("the lock outlives agent and wrapper with the command, by one description (aws-c-common#1192, util-linux#2993)", async () => {
  const start = fleet(server.url, 20_000);
  await using agent = await start("alpha");
  const script = "echo $$ > $0.pid; exec sleep 1000";
  const path = join(agent.dir, "command");
  const guard = guardOne(agent, ["sh", "-c", script, path]);
  const pid = await until("it runs", () => {
    try {
      return Number(readFileSync(`${path}.pid`, "utf8"));
    } catch {
      return 0;
    }
  });
  // The agent opens and closes the file for each of these: a lock of another kind would be gone.
  for (let i = 0; i < 3; i++) {
    expect((await runClient(agent, ["guard", "one", "--", "true"])).status).toBe(75);
  }
  expect(lockFree(agent)).toBe(false);
  await agent.end("SIGKILL");
  expect(lockFree(agent)).toBe(false);
  guard.kill("SIGKILL");
  await guard.exited;
  expect(isRunning(pid)).toBe(true);
  expect(lockFree(agent)).toBe(false);
  process.kill(pid, "SIGKILL");
  await until("the lock is free", () => lockFree(agent));
});

test("pass_lock gives the locked descriptor to Python and to the client library; it outlives the agent", async () => {
  const start = fleet(server.url, 20_000);
  await using agent = await start("alpha");
  await using holder = python(HOLDER, agent.socket, "pass_lock");
  expect((await holder.line()).split(" ")[1]).toBe("1");
  await agent.end("SIGKILL");
  expect(lockFree(agent)).toBe(false);
  await holder.kill();
  await until("the lock is free", () => lockFree(agent));

  await using second = await start("alpha", again(agent));
  const socket = await openSocket({ socket: second.socket });
  const params = { store: "one", pass_lock: true };
  const grant = await requestLocked(socket, {
    method: "guard",
    params,
    path: second.socket,
    withinMs: 60_000,
  });
  expect(grant.lockFd).toBeGreaterThan(2);
  const gone = grant.connection.closed;
  await second.end("SIGKILL");
  await gone;
  expect(lockFree(second)).toBe(false);
  const { closeSync } = await import("node:fs");
  closeSync(grant.lockFd!);
  expect(lockFree(second)).toBe(true);
});

test("a client that is killed loses its grant and its lock at once (etcd#17470)", async () => {
  const start = fleet(server.url, 30_000);
  await using agent = await start("alpha");
  await using holder = python(HOLDER, agent.socket);
  await holder.line();
  const client = await agent.client();
  expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("busy");
  await holder.kill();
  expect((await client.call("guard", { store: "one", wait_ms: 10_000 })).store).toBe("one");
});

test("the journal is empty when all grants ended, however they ended", async () => {
  const start = fleet(server.url, 30_000);
  await using agent = await start("alpha");
  const client = await agent.client();
  for (let i = 0; i < 5; i++) {
    const { token } = await client.call("guard", { store: "one" });
    await client.call("release", { token });
  }
  await using holder = python(HOLDER, agent.socket);
  await holder.line();
  await holder.kill();
  await until("the grant ended", async () => (await client.call("status", {})).counts.grants === 0);
  const entries = new Map<string, unknown>();
  for (const line of readFileSync(join(agent.state, "grants"), "utf8").split("\n").slice(0, -1)) {
    const { key, value } = JSON.parse(line);
    if (value === undefined) entries.delete(key);
    else entries.set(key, value);
  }
  entries.delete(undefined as unknown as string);
  expect([...entries.keys()]).toEqual([]);
});
