/**
 * A real Prometheus that scrapes real agents under load: every expression of the dashboard and of the
 * alert rules is asked there, and has to bring what panel and alert are made of.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort, NatsServer } from "../support/nats.ts";
import { RealAgent, refusal } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const SCRIPTS = join(import.meta.dir, "../../scripts");
const RULES = join(SCRIPTS, "observability/alerts.yml");
const DASHBOARD = JSON.parse(
  readFileSync(join(SCRIPTS, "observability/dashboard.json"), "utf8"),
) as { panels: Panel[]; templating: { list: Record<string, unknown>[] } };

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly datasource: { readonly type: string; readonly uid: string };
  readonly gridPos: {
    readonly x: number;
    readonly y: number;
    readonly w: number;
    readonly h: number;
  };
  readonly fieldConfig: { readonly defaults: { readonly unit: string } };
  readonly targets: readonly { refId: string; expr: string; legendFormat: string }[];
}

interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [number, string];
}

/** Names of units as Grafana has them (packages/grafana-data/src/valueFormats). */
const UNITS = ["short", "ops", "s", "bytes", "percentunit"];

let nats: NatsServer;
let agents: RealAgent[];
let prometheus: Bun.Subprocess;
let api: string;
let loading = true;
let load: Promise<void>;
const dir = tempDir();

/** Begins what takes its time, so that the tests can ask for what came of it. */
beforeAll(async () => {
  nats = await NatsServer.start();
  const ports = await Promise.all([freePort(), freePort(), freePort(), freePort()]);
  const flags = (i: number) => ["--http", `127.0.0.1:${ports[i]}`];
  // Whichever is first makes the bucket.
  const ttl = ["--ttl", "3s"];
  agents = await Promise.all([
    RealAgent.start({
      node: "alpha",
      nats: nats.url,
      flags: [...flags(0), ...ttl, "--max-grants", "8"],
    }),
    RealAgent.start({ node: "beta", nats: nats.url, flags: [...flags(1), ...ttl] }),
    // By mistake one more that calls itself alpha, and that writes without a coordinator.
    RealAgent.start({ node: "alpha", flags: flags(2) }),
  ]);
  writeFileSync(
    join(dir.path, "prometheus.yml"),
    JSON.stringify({
      global: { scrape_interval: "1s", evaluation_interval: "1s" },
      rule_files: [RULES],
      scrape_configs: [{
        job_name: "zit-agent",
        static_configs: [{ targets: ports.slice(0, 3).map((port) => `127.0.0.1:${port}`) }],
      }],
    }),
  );
  const program = Bun.spawnSync([join(SCRIPTS, "prometheus"), "prometheus"]).stdout;
  prometheus = Bun.spawn({
    cmd: [
      program.toString().trim(),
      `--config.file=${join(dir.path, "prometheus.yml")}`,
      `--storage.tsdb.path=${join(dir.path, "data")}`,
      `--web.listen-address=127.0.0.1:${ports[3]}`,
    ],
    stdout: "ignore",
    stderr: Bun.file(join(dir.path, "log")),
  });
  reap(prometheus.pid);
  api = `http://127.0.0.1:${ports[3]}/api/v1`;
  await until("all agents are scraped", async () => {
    const up = await ask('up{job="zit-agent"} == 1').catch(() => []);
    return up.length === 3;
  });
  for (const agent of agents) for (const store of ["busy", "stale"]) agent.makeStore(store);
  load = guardAlways();
  await thingsGoWrong();
}, 120_000);

afterAll(async () => {
  loading = false;
  await load;
  prometheus.kill("SIGKILL");
  await prometheus.exited;
  reaped(prometheus.pid);
  for (const agent of agents) await agent[Symbol.asyncDispose]();
  await nats.stop();
  dir[Symbol.dispose]();
});

async function guardAlways(): Promise<void> {
  const clients = await Promise.all(agents.map((agent) => agent.client()));
  while (loading) {
    for (const client of clients) {
      const grant = await client.call("guard", { store: "busy" }).catch(() => null);
      if (grant !== null) await client.call("release", { token: grant.token }).catch(() => {});
    }
    await Bun.sleep(20); // bounded: the machine has others
  }
}

/** What some panels and alerts are about: a check that fails, refusals, a lost lease, an epoch that is too low. */
async function thingsGoWrong(): Promise<void> {
  const [alpha, beta] = agents;
  rmSync(join(beta.state, "lock"));
  const client = await alpha.client();
  for (let i = 0; i < 8; i++) {
    alpha.makeStore(`kept-${i}`);
    await client.call("guard", { store: `kept-${i}` });
  }
  expect((await refusal(client.call("guard", { store: "busy" }))).kind).toBe("limit");
  const fence = { store: "stale", node: "beta", incarnation: "x", epoch: 2 ** 52, pid: 1 };
  writeFileSync(
    join(alpha.locks, "stale/lease.lock"),
    `${JSON.stringify({ ...fence, at: new Date().toISOString() })}\n`,
  );
  const other = await alpha.client();
  expect((await refusal(other.call("guard", { store: "stale" }))).kind).toBe("stale_epoch");
  const frozenFrom = alpha.log().length;
  nats.freeze();
  await alpha.logged("lost", { store: "kept-0" }, frozenFrom);
  nats.thaw();
}

async function get<T>(path: string): Promise<T> {
  const answer = await (await fetch(`${api}/${path}`)).json() as
    | { status: "success"; data: T }
    | { status: "error"; error: string };
  if (answer.status === "error") throw new Error(answer.error);
  return answer.data;
}

/** What an expression comes to now. */
async function ask(expr: string): Promise<Series[]> {
  const data = await get<{ resultType: string; result: Series[] }>(
    `query?query=${encodeURIComponent(expr)}`,
  );
  expect([expr, data.resultType]).toEqual([expr, "vector"]);
  return data.result;
}

/** Its series, once there are some; without those of hosts where it is about nothing: NaN. */
function data(expr: string): Promise<Series[]> {
  return until(`there is data of ${expr}`, async () => {
    const series = (await ask(expr)).filter(({ value }) => Number.isFinite(Number(value[1])));
    return series.length > 0 && series;
  }, 60_000);
}

/** The labels that a text of Grafana's or of an alert's refers to. */
function labelsIn(text: string): string[] {
  return [...text.matchAll(/\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}/g)].map(([, label]) => label!);
}

describe("the dashboard", () => {
  const targets = DASHBOARD.panels.flatMap(({ title, targets }) =>
    targets.map(({ expr, legendFormat }) => [title, expr, legendFormat] as const)
  );

  test.each(targets)("%s: there is data of %s", async (_title, expr, legend) => {
    const asked = expr.replaceAll("$instance", ".*").replaceAll("$__rate_interval", "1m");
    expect(asked).not.toContain("$");
    const series = await data(asked);
    for (const label of labelsIn(legend)) {
      for (const { metric } of series) expect(Object.keys(metric)).toContain(label);
    }
    // A legend tells the lines apart.
    const legends = series.map(({ metric }) =>
      legend.replace(/\{\{(\w+)\}\}/g, (_, label) => metric[label]!)
    );
    expect(new Set(legends).size).toBe(legends.length);
  }, 90_000);

  test("is put together so that Grafana takes it", () => {
    const { panels, templating } = DASHBOARD;
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const names = templating.list.map(({ name }) => name);
    expect(names).toEqual(["datasource", "instance"]);
    expect(templating.list[0]).toMatchObject({ type: "datasource", query: "prometheus" });
    // Asked when the dashboard is opened; without, there is nothing to choose from.
    expect(templating.list[1]).toMatchObject({ type: "query", refresh: 2 });
    for (const { type, datasource, fieldConfig, gridPos, targets } of panels) {
      expect(["stat", "timeseries"]).toContain(type);
      expect(datasource).toEqual({ type: "prometheus", uid: "${datasource}" });
      expect(UNITS).toContain(fieldConfig.defaults.unit);
      expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
      expect(new Set(targets.map(({ refId }) => refId)).size).toBe(targets.length);
      for (const { expr } of targets) {
        for (const [, name] of expr.matchAll(/\$(\w+)/g)) {
          expect([...names, "__rate_interval"]).toContain(name);
        }
      }
    }
    const overlaps = panels.filter(({ id, gridPos: a }) =>
      panels.some(({ id: other, gridPos: b }) =>
        id < other && a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h
      )
    );
    expect(overlaps).toEqual([]);
  });

  test("offers the hosts there are", async () => {
    const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(
      DASHBOARD.templating.list[1].query as string,
    )!;
    const found = await get<string[]>(`label/${label}/values?match[]=${metric}`);
    expect(found).toHaveLength(3);
  });
});

describe("the alert rules", () => {
  interface Rule {
    readonly name: string;
    readonly query: string;
    readonly annotations: Readonly<Record<string, string>>;
    readonly health: string;
    readonly state: string;
  }
  const rules = async () =>
    (await get<{ groups: { rules: Rule[] }[] }>("rules")).groups.flatMap(({ rules }) => rules);

  test("each is about something that there is, with the labels that its words name", async () => {
    const all = await rules();
    expect(all.length).toBeGreaterThan(10);
    for (const { name, query, annotations, health } of all) {
      expect([name, health]).toEqual([name, "ok"]);
      // Without the threshold: all that the alert could be about.
      const [, left] = /^(.*) (?:==|>) [\d.]+$/s.exec(query)!;
      const labels = labelsIn(Object.values(annotations).join());
      for (const { metric } of await data(left!)) {
        for (const label of labels) expect([name, label in metric]).toEqual([name, true]);
      }
    }
  }, 90_000);

  test("what went wrong is told, and nothing else", async () => {
    const told = ["ZitLeasesLost", "ZitLimitReached", "ZitStaleEpoch", "ZitUnguardedWrites"]
      .concat("ZitDuplicateNode", "ZitCheckFails");
    const active = async () =>
      (await rules()).filter(({ state }) => state !== "inactive").map(({ name }) => name);
    await until("each is told", async () => {
      const now = await active();
      return told.every((name) => now.includes(name));
    }, 30_000);
    await until("the outage is over", async () => (await active()).length === told.length);
    expect((await active()).toSorted()).toEqual(told.toSorted());
  }, 60_000);
});
