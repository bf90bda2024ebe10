/** Metrics, health and readiness of a real agent; alert rules and dashboard that go with them. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Admin } from "../support/admin.ts";
import { freePort, NatsServer } from "../support/nats.ts";
import { RealAgent, refusal } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const SCRIPTS = join(import.meta.dir, "../../scripts");
const RULES = join(SCRIPTS, "observability");
let promtool: string;
let nats: NatsServer;

beforeAll(async () => {
  promtool = Bun.spawnSync([join(SCRIPTS, "prometheus"), "promtool"]).stdout.toString().trim();
  nats = await NatsServer.start();
}, 60_000);
afterAll(() => nats.stop());

async function monitored(nats: string, flags: readonly string[] = []) {
  const http = `127.0.0.1:${await freePort()}`;
  const agent = await RealAgent.start({
    node: "alpha",
    nats,
    flags: ["--http", http, "--ttl", "3s", ...flags],
  });
  const get = async (path: string) => {
    const response = await fetch(`http://${http}${path}`);
    return { status: response.status, body: await response.text() };
  };
  const metric = async (series: string) => {
    const { body } = await get("/metrics");
    const line = body.split("\n").find((each) => each.startsWith(`${series} `));
    if (line === undefined) throw new Error(`no ${series} in ${body}`);
    return Number(line.split(" ")[1]);
  };
  return { agent, get, metric };
}

function check(args: readonly string[], input?: string) {
  const run = Bun.spawnSync([promtool, ...args], {
    stdin: input === undefined ? "ignore" : Buffer.from(input),
  });
  return { status: run.exitCode, output: `${run.stdout}${run.stderr}` };
}

describe("/metrics", () => {
  test("counts what happens, under the contract's names, as promtool likes it", async () => {
    const { agent, get, metric } = await monitored(nats.url);
    await using _ = agent;
    agent.makeStore("one");
    const client = await agent.client();
    expect(await metric("zit_agent_leases_held")).toBe(0);
    const { token } = await client.call("guard", { store: "one" });
    await refusal(client.call("guard", { store: "one" }));
    const waiting = client.call("guard", { store: "one", wait_ms: 20_000 });
    await until("it waits", async () => await metric("zit_agent_waiters") === 1);
    expect(await metric("zit_agent_leases_held")).toBe(1);
    expect(await metric("zit_agent_grants_active")).toBe(1);
    expect(await metric('zit_agent_guard_total{outcome="granted"}')).toBe(1);
    expect(await metric('zit_agent_guard_total{outcome="busy"}')).toBe(1);
    expect(await metric('zit_agent_guard_total{outcome="unavailable"}')).toBe(0);
    await client.call("release", { token });
    await waiting;
    expect(await metric("zit_agent_guard_seconds_count")).toBe(2);
    expect(await metric("zit_agent_renew_seconds_count")).toBeGreaterThanOrEqual(2);
    expect(await metric("zit_agent_coordinator_up")).toBe(1);
    expect(await metric("zit_agent_unguarded_total")).toBe(0);
    expect(await metric("process_open_fds")).toBeGreaterThan(5);
    const startedS = await metric("process_start_time_seconds");
    expect(Math.abs(startedS - Date.now() / 1_000)).toBeLessThan(60);

    const { body } = await get("/metrics");
    expect(check(["check", "metrics"], body)).toEqual({ status: 0, output: "" });
    const wrong = body.replaceAll("zit_agent_guard_total", "zit_agent_guardTotal");
    expect(check(["check", "metrics"], wrong).status).not.toBe(0);
  });

  test("are those of the manual's table, and the contract's, with these types and labels", async () => {
    const { agent, get } = await monitored(nats.url);
    await using _ = agent;
    const { body } = await get("/metrics");
    const exposed = [...body.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name, type]) => {
      const [, labels = ""] = new RegExp(`^${name}\\{([^}]*)\\}`, "m").exec(body) ?? [];
      const shown = [...labels.matchAll(/(\w+)=/g)].map(([, label]) => label).join();
      return `${name}${shown && `{${shown}}`} ${type}`;
    });
    const manual = readFileSync(join(SCRIPTS, "../docs/operations.md"), "utf8");
    const rows = [...manual.matchAll(/^\| `((?:zit_agent|process)_[^`]+)` \| (\w+) \|/gm)];
    expect(exposed.toSorted()).toEqual(rows.map(([, name, type]) => `${name} ${type}`).toSorted());
    const contract = ["leases_held gauge", "guard_total{outcome} counter", "waiters gauge"]
      .concat("guard_seconds histogram", "renew_seconds histogram", "renew_overdue_seconds gauge")
      .concat("coordinator_up gauge", "lost_total{reason} counter", "grants_active gauge")
      .concat("unguarded_total counter", "build_info{version,bun,node} gauge")
      // Ours.
      .concat("check_failing{check} gauge");
    expect(exposed.filter((each) => each.startsWith("zit_")).toSorted())
      .toEqual(contract.map((each) => `zit_agent_${each}`).toSorted());
  });

  test(
    "an outage is seen, in metrics and readiness, and liveness goes on through it (kubernetes#82960)",
    async () => {
      await using own = await NatsServer.start();
      const { agent, get, metric } = await monitored(own.url);
      await using _ = agent;
      agent.makeStore("one");
      const client = await agent.client();
      await client.call("guard", { store: "one" });
      expect(await get("/readyz")).toEqual({
        status: 200,
        body: "healthy: alpha holds 1 store\n",
      });
      own.freeze();
      await until(
        "renewals are overdue",
        async () => await metric("zit_agent_renew_overdue_seconds") > 1,
      );
      const late = await until("it is not ready", async () => {
        const page = await get("/readyz");
        return page.status === 503 && page;
      });
      expect(late.body).toMatch(/^unhealthy; .*(renewals|coordinator): /);
      await until(
        "the lease is lost",
        async () => await metric('zit_agent_lost_total{reason="deadline"}') === 1,
      );
      await until("it is down", async () => await metric("zit_agent_coordinator_up") === 0);
      expect((await get("/healthz")).status).toBe(200);
      own.thaw();
      await until("it is ready again", async () => (await get("/readyz")).status === 200);
    },
    40_000,
  );

  test("a bucket that contradicts the agent is seen while nobody asks for a guard", async () => {
    await using own = await NatsServer.start();
    const { agent, metric } = await monitored(own.url);
    await using _ = agent;
    const failing = (check: string) => metric(`zit_agent_check_failing{check="${check}"}`);
    expect([await failing("bucket"), await failing("server_version")]).toEqual([0, 0]);
    await using admin = await Admin.connect(own.url);
    await admin.jsm.streams.update("KV_leases", { max_age: 5e9 });
    await until("it is seen", async () => await failing("bucket") === 1);
    expect(await failing("coordinator")).toBe(0);
    await admin.jsm.streams.update("KV_leases", { max_age: 3e9 });
    await until("it is over", async () => await failing("bucket") === 0);
    expect(await metric('zit_agent_guard_total{outcome="misconfigured"}')).toBe(0);
  }, 40_000);

  test("a page that cannot be served is told: exit 73", async () => {
    const port = await freePort();
    const other = Bun.listen({ hostname: "127.0.0.1", port, socket: { data() {} } });
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: nats.url,
      flags: ["--http", `127.0.0.1:${port}`],
      awaitReady: false,
    });
    expect(await agent.exited()).toBe(73);
    expect((await agent.logged("failed")).message).toContain("Cannot serve HTTP at");
    other.stop(true);
  });

  test("without --http nothing of it is loaded", async () => {
    await using agent = await RealAgent.start({ node: "alpha", nats: nats.url });
    const sockets = Bun.spawnSync(["ls", "-l", `/proc/${agent.pid}/fd`]).stdout.toString();
    const listening = readFileSync("/proc/net/tcp", "utf8").split("\n")
      .filter((line) => line.includes(" 0A ")).map((line) => line.trim().split(/\s+/)[9]);
    expect(listening.filter((inode) => sockets.includes(`socket:[${inode}]`))).toEqual([]);
  });
});

describe("scripts/observability", () => {
  test("the alert rules fire when they should, and not before", () => {
    expect(check(["check", "rules", join(RULES, "alerts.yml")]).status).toBe(0);
    expect(check(["test", "rules", join(RULES, "alerts_test.yml")])).toMatchObject({ status: 0 });
  });

  test("every rule is tested, and explained in the manual", () => {
    const rules = readFileSync(join(RULES, "alerts.yml"), "utf8");
    const tests = readFileSync(join(RULES, "alerts_test.yml"), "utf8");
    const manual = readFileSync(join(SCRIPTS, "../docs/operations.md"), "utf8");
    const names = [...rules.matchAll(/- alert: (\w+)/g)].map(([, name]) => name!);
    expect(names.length).toBeGreaterThan(10);
    for (const name of names) {
      expect(tests).toContain(`alertname: ${name}\n`);
      expect(manual).toContain(`\`${name}\``);
    }
  });

  test("the tests of the rules can fail", () => {
    using dir = tempDir();
    cpSync(RULES, dir.path, { recursive: true });
    const rules = join(dir.path, "alerts.yml");
    const changed = readFileSync(rules, "utf8").replace(
      "coordinator_up == 0",
      "coordinator_up == 2",
    );
    writeFileSync(rules, changed);
    expect(check(["test", "rules", join(dir.path, "alerts_test.yml")]).status).not.toBe(0);
  });

  test("rules and dashboard ask for metrics that there are", async () => {
    const { agent, get } = await monitored(nats.url);
    await using _ = agent;
    const { body } = await get("/metrics");
    for (const file of ["alerts.yml", "dashboard.json"]) {
      const text = readFileSync(join(RULES, file), "utf8");
      const asked = new Set(text.match(/\b(zit_agent_[a-z_]+[a-z]|process_[a-z_]+)\b/g));
      for (const name of asked) {
        expect([file, name, body.includes(`\n${name}`)]).toEqual([file, name, true]);
      }
    }
  });
});
