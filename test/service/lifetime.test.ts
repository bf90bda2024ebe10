/** What the service manager hears and passes in, with the real program. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openConnection } from "../../src/client/mod.ts";
import { ServiceManager } from "../support/manager.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent, runClient } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

let nats: NatsServer;
beforeAll(async () => {
  nats = await NatsServer.start();
});
afterAll(() => nats.stop());

test("READY comes with the socket and the coordinator, STATUS tells what is held, STOPPING that it ends", async () => {
  await using manager = await ServiceManager.start();
  await using agent = await RealAgent.start({
    node: "alpha",
    nats: nats.url,
    flags: ["--bucket", "ready", "--ttl", "6s"],
    env: { NOTIFY_SOCKET: manager.address, WATCHDOG_USEC: "600000" },
  });
  expect(await manager.heard(/^READY=1/)).toContain(
    `STATUS=0 held, 0 waiting, 0 elsewhere, 0 grants out; coordinator ${nats.url}`,
  );
  await (await agent.client()).call("status", {});
  await until("the watchdog is fed", () => manager.count(/^WATCHDOG=1$/) > 2);
  agent.makeStore("one");
  const client = await agent.client();
  const { token } = await client.call("guard", { store: "one" });
  await manager.heard(/^STATUS=1 held, 0 waiting, 0 elsewhere, 1 grants out/);

  await runClient(agent, ["stepdown", "two", "--for", "1h"]); // A single one is no news.
  const stepped = client.call("stepdown", { all: true, for_ms: 3_600_000 });
  await manager.heard(/^STATUS=stepped down from every store until \S+Z; 0 held, 1 waiting/);

  agent.signal("SIGTERM");
  await manager.heard(/^STOPPING=1\|STATUS=draining, at most \d+s more; 0 held, 1 waiting/);
  await until(
    "time is asked for more than once",
    () => manager.count(/^EXTEND_TIMEOUT_USEC=15000000$/) > 1,
  );
  const fed = manager.count(/^WATCHDOG=1$/);
  await until("the watchdog is fed while it drains", () => manager.count(/^WATCHDOG=1$/) > fed);
  await client.call("release", { token });
  await stepped.catch(() => null); // The end of the agent may come first.
  expect(await agent.exited()).toBe(0);
  expect(manager.told.findIndex((each) => /^READY/.test(each)))
    .toBeLessThan(manager.told.findIndex((each) => /^STOPPING/.test(each)));
  expect(manager.count(/^STOPPING/)).toBe(1);
});

test("READY comes without the coordinator, 5 s after it could not be reached", async () => {
  await using manager = await ServiceManager.start();
  const startedMs = performance.now();
  await using agent = await RealAgent.start({
    node: "alpha",
    nats: "nats://127.0.0.1:1",
    env: { NOTIFY_SOCKET: manager.address },
    awaitReady: false,
  });
  await manager.heard(/^STATUS=starting: waiting for the coordinator$/);
  const client = await until(
    "the socket answers",
    () => openConnection({ socket: agent.socket }).catch(() => null),
  );
  expect((await client.call("status", {})).healthy).toBe(false);
  await client.close();
  expect(manager.count(/^READY/)).toBe(0);
  expect(await manager.heard(/^READY=1/)).toContain("not reachable: all writes are refused");
  expect(performance.now() - startedMs).toBeGreaterThan(5_000);
}, 30_000);

test("the socket that systemd passes in is used as it is, and left alone at the end", async () => {
  using dir = tempDir();
  const path = join(dir.path, "activated.sock");
  mkdirSync(join(dir.path, "locks/one"), { recursive: true });
  // Opens the socket, connects to it before anybody serves, then becomes the agent, as systemd does.
  const opener = `
import os, socket, sys
listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listening.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o666); listening.listen(16)
os.dup2(listening.fileno(), 3); os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])`;
  const child = Bun.spawn({
    cmd: ["python3", "-c", opener, path, AGENT, "run", "--standalone", "a test", "--node", "alone"]
      .concat(["--socket", join(dir.path, "unused.sock"), "--state-dir", join(dir.path, "state")])
      .concat(["--lock-path", join(dir.path, "locks/{store}/lease.lock")]),
    env: { PATH: process.env.PATH! },
    stderr: "ignore",
  });
  reap(child.pid);
  const client = await until(
    "it answers",
    () => openConnection({ socket: path }).catch(() => null),
  );
  expect((await client.call("guard", { store: "one" })).store).toBe("one");
  await client.close();
  child.kill("SIGTERM");
  expect(await child.exited).toBe(0);
  reaped(child.pid);
  // Systemd's own: callers wait there until the service is started again.
  expect(Bun.file(path).size).toBeGreaterThanOrEqual(0);
  expect(() => chmodSync(path, 0o600)).not.toThrow();
});

test("SIGHUP reads the stores again, keeps the old where it cannot, and tells the manager", async () => {
  await using manager = await ServiceManager.start();
  using dir = tempDir();
  const stores = join(dir.path, "stores");
  writeFileSync(stores, "one\n");
  await using agent = await RealAgent.start({
    node: "alpha",
    nats: nats.url,
    flags: ["--bucket", "reload", "--ttl", "6s", "--stores", stores],
    env: { NOTIFY_SOCKET: manager.address },
  });
  await agent.logged("acquired", { store: "one" });
  writeFileSync(stores, "one\nnot//a store\n");
  agent.signal("SIGHUP");
  const failed = await agent.logged("reload_failed", { what: "stores" });
  expect(failed.message).toContain(`Line 2 of the stores file ${stores}`);
  expect((await runClient(agent, ["held", "one"])).status).toBe(0);
  await manager.heard(/^RELOADING=1/);
  await manager.heard(/^READY=1/, manager.told.findIndex((each) => /^RELOADING/.test(each)));

  writeFileSync(stores, "# two more\none\ntwo\n");
  agent.signal("SIGHUP");
  await agent.logged("reloaded");
  await agent.logged("acquired", { store: "two" });
});

test("SIGHUP reads credentials again; refused ones are a warning, and the old connection goes on", async () => {
  using dir = tempDir();
  const password = join(dir.path, "password");
  writeFileSync(password, "first-secret\n");
  const users = (...passwords: string[]) =>
    `authorization { users: [${
      passwords.map((each, i) => `{ user: agent${i === 0 ? "" : i}, password: "${each}" }`).join(
        ", ",
      )
    }] }`;
  await using own = await NatsServer.start({ config: users("first-secret") });
  await using agent = await RealAgent.start({
    node: "alpha",
    nats: own.url,
    flags: ["--user", "agent", "--password-file", password],
  });
  const client = await agent.client();
  writeFileSync(password, "wrong-secret\n");
  agent.signal("SIGHUP");
  await agent.logged("reload_failed", { what: "credentials" });
  const status = await client.call("status", {});
  expect(status).toMatchObject({ healthy: true, coordinator: { connected: true } });
  expect(status.warnings.join()).toContain("refuses our credentials");
  agent.makeStore("one");
  const { token } = await client.call("guard", { store: "one" });

  writeFileSync(password, "first-secret\n");
  agent.signal("SIGHUP");
  await agent.logged("reloaded");
  expect((await client.call("status", {})).warnings.join()).not.toContain("credentials");
  // Nothing secret in the log, whatever happened.
  const log = readFileSync(join(agent.dir, "log"), "utf8");
  expect(log).not.toContain("secret");
  expect(log).not.toContain(token);
});

test("what the agent cannot run with is logged before that it stopped, and says what to do", async () => {
  using dir = tempDir();
  const file = join(dir.path, "file");
  writeFileSync(file, "");
  await using agent = await RealAgent.start({ node: "alone", socket: file, awaitReady: false });
  expect(await agent.exited()).toBe(73);
  const last = agent.log().slice(-2);
  expect(last.map(({ event }) => event)).toEqual(["failed", "stopped"]);
  expect(last[0]!.message).toBe(
    `Cannot listen on ${file}: the file exists and is not a socket; remove it, or give another ` +
      "path with --socket",
  );
  await using other = await RealAgent.start({
    node: "alone",
    flags: ["--stores", join(dir.path, "none")],
    awaitReady: false,
  });
  expect(await other.exited()).toBe(78);
  expect(other.log().map(({ event, message }) => [event, message])).toEqual([[
    "failed",
    `Cannot read the stores file ${
      join(dir.path, "none")
    }: no such file or directory (ENOENT); make it, ` +
    "one store code a line, or correct --stores",
  ]]);
});
