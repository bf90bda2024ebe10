/**
 * Real faults on a real cluster: `bun run.ts OPTIONS` as scripts/chaos calls it. Rounds of one or two
 * faults each; after each, everything is healed and every store has to be granted again in time. What
 * happened is noted, then checked by the checker, which is told nothing but the notes.
 *
 * The last line is `grants=N overlaps=N stuck=N`; exit status 1 if anything was wrong.
 * @module
 */
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { natsServerPath } from "../support/nats.ts";
import { AGENT } from "../support/real_agent.ts";
import { check, type Verdict } from "./checker.ts";
import { report } from "./check.ts";
import { type FaultKind, FAULTS, type Injected } from "./faults/mod.ts";
import type { Event } from "./history.ts";
import { Loopback, makeNamespaces, type Network } from "./network.ts";
import { drawTimeline } from "./timeline.ts";
import { AGENT_NAMES, OLDER_NAME, type Plan, SERVER_NAMES, World } from "./world.ts";

/** A fault is shorter than a TTL, so that nothing need be lost, or long enough for a failover. */
const SHORT_FAULT_MS = [200, 3_500] as const;
const LONG_FAULT_MS = [5_000, 13_000] as const;
/** Between two rounds, when all is well again. */
const PAUSE_MS = [0, 2_000] as const;
/** One round in so many is followed by a peace long enough for no fault to excuse any refusal. */
const PEACE_EVERY = 6;
const PEACE_MS = 24_000;

const values = readOptions();

/** The options; whoever wrote them wrong is told so, with status 64. */
function readOptions() {
  try {
    const { values } = parseArgs({
      options: {
        minutes: { type: "string", default: "10" },
        seed: { type: "string" },
        suite: { type: "string" },
        sync: { type: "string" },
        "no-older": { type: "boolean", default: false },
        upgrade: { type: "boolean", default: false },
        "old-agent": { type: "string" },
        fault: { type: "string", multiple: true },
        keep: { type: "string", default: "run/chaos" },
        "keep-all": { type: "boolean", default: false },
        loopback: { type: "boolean", default: false },
        ttl: { type: "string", default: "4" },
        grace: { type: "string" },
      },
    });
    for (const name of ["minutes", "seed", "ttl", "grace"] as const) {
      const text = values[name];
      if (text !== undefined && !/^\d+(\.\d+)?$/.test(text)) {
        throw new Error(`--${name} takes a number, not "${text}"`);
      }
    }
    const choices = { suite: ["trixie", "mixed"], sync: ["always", "default"] } as const;
    for (const name of ["suite", "sync"] as const) {
      const text = values[name];
      if (text !== undefined && !(choices[name] as readonly string[]).includes(text)) {
        throw new Error(`--${name} takes ${choices[name].join(" or ")}, not "${text}"`);
      }
    }
    const unknown = values.fault?.find((fault) => !FAULTS.some(({ name }) => name === fault));
    if (unknown !== undefined) {
      const known = FAULTS.map(({ name }) => name).join(", ");
      throw new Error(`There is no fault "${unknown}"; there are ${known}`);
    }
    return values;
  } catch (error) {
    console.error(`chaos: ${(error as Error).message}`);
    process.exit(64);
  }
}

function say(text: string): void {
  console.log(`chaos: ${text}`);
}

async function main(): Promise<number> {
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1e6));
  const dir = mkdtempSync(join(tmpdir(), "chaos-"));
  try {
    return await runIn(dir, seed);
  } catch (error) {
    say(`the run of seed ${seed} broke off; what there is of it is in ${dir}`);
    throw error;
  }
}

async function runIn(dir: string, seed: number): Promise<number> {
  const world = await World.start({
    seed,
    dir,
    network: await makeNetwork(),
    ttlMs: Number(values.ttl) * 1_000,
    stores: ["alpha", "beta", "gamma"],
    graceMs: Number(values.grace ?? values.ttl) * 1_000,
    ...servers(),
    // Half the seeds, unless it was chosen: as servers are by default, and as they should be.
    sync: (values.sync ?? (seed % 2 === 0 ? "always" : "default")) as Plan["sync"],
    older: !values["no-older"],
    ...upgrade(dir),
  });
  say(
    `seed ${seed}, ${world.locks} lock files, ${world.plan.servers}, sync ${world.plan.sync}, ` +
      `TTL ${world.plan.ttlMs} ms, in ${dir}`,
  );
  await calm(world);
  await rounds(world);
  const statuses = await world.finish();
  const events = world.collect();
  const verdict = check(events);
  const ended = statuses.every((status) => status === 0);
  if (!ended) say(`the agents ended with ${statuses.join(", ")} instead of 0`);
  const failed = verdict.violations.length > 0 || !ended;
  save(world, { events, verdict, failed });
  rmSync(dir, { recursive: true, force: true });
  report(verdict);
  return failed ? 1 : 0;
}

async function makeNetwork(): Promise<Network> {
  if (!values.loopback && process.env.CHAOS_NAMESPACES === "1") {
    return await makeNamespaces([...AGENT_NAMES, ...SERVER_NAMES, OLDER_NAME]);
  }
  say(
    "no network namespaces: everything on the loopback, partitions by proxies, servers never split",
  );
  return new Loopback();
}

/** The servers: fit ones, those of Debian trixie, or two of these and one of those. */
function servers(): Pick<Plan, "programs" | "upgradedServer" | "servers"> {
  const fit = natsServerPath();
  const { suite } = values;
  if (suite === undefined) {
    return { programs: [fit, fit, fit], upgradedServer: fit, servers: "nats-server" };
  }
  const old = natsServerPath("trixie");
  return suite === "trixie"
    ? { programs: [old, old, old], upgradedServer: old, servers: "nats-server of trixie" }
    : {
      programs: [old, old, fit],
      upgradedServer: fit,
      servers: "nats-server of trixie, and a newer",
    };
}

/** The programs to upgrade between: two copies, unless an older agent is given. */
function upgrade(dir: string): { upgradeFrom: string | null; upgradeTo: string | null } {
  if (!values.upgrade) return { upgradeFrom: null, upgradeTo: null };
  const [upgradeFrom, upgradeTo] = [join(dir, "agent-old"), join(dir, "agent-new")];
  copyFileSync(values["old-agent"] ?? AGENT, upgradeFrom);
  copyFileSync(AGENT, upgradeTo);
  return { upgradeFrom, upgradeTo };
}

async function rounds(world: World): Promise<void> {
  const { random, history } = world;
  const kinds = FAULTS.filter(({ name, fits }) =>
    (fits?.(world) ?? true) &&
    (values.fault === undefined || values.fault.includes(name)) &&
    (!values.upgrade || values.fault !== undefined || name === "upgrade agent")
  );
  if (kinds.length === 0) throw new Error(`No such fault: ${values.fault}`);
  const endMs = performance.now() + Number(values.minutes) * 60_000;
  for (let round = 1; performance.now() < endMs; round++) {
    history.note({ kind: "disturbed" });
    const first = random.pick(kinds);
    const others = kinds.filter(({ area }) => area !== first.area);
    const chosen = others.length > 0 && random.chance(0.4) ? [first, random.pick(others)] : [first];
    const [leastMs, mostMs] = random.chance(0.5) ? SHORT_FAULT_MS : LONG_FAULT_MS;
    const durationMs = random.between(leastMs, mostMs);
    const peaceful = round % PEACE_EVERY === 0;
    const pauseMs = random.between(...PAUSE_MS);
    const heals = [];
    for (const kind of chosen) heals.push(await inject(world, kind));
    await Bun.sleep(durationMs);
    for (const heal of heals) await heal();
    await calm(world);
    await Bun.sleep(peaceful ? PEACE_MS : pauseMs);
  }
  history.note({ kind: "disturbed" });
}

let faults = 0;

/** Injects a fault and notes it; returns what heals it. */
async function inject(world: World, kind: FaultKind): Promise<() => Promise<void>> {
  const fault = ++faults;
  const t = bootTimeMs();
  let injected: Injected;
  try {
    injected = await kind.inject(world, world.random.fork());
  } catch (error) {
    // An operator whose command fails while the cluster is down: it may have half happened.
    injected = { targets: SERVER_NAMES, detail: `failed: ${(error as Error).message}` };
  }
  const { targets, detail } = injected;
  world.history.note({ kind: "fault", fault, name: kind.name, targets, detail }, t);
  say(`${kind.name}: ${targets.join(", ")}${detail === undefined ? "" : ` (${detail})`}`);
  const { heal } = injected;
  if (heal === undefined) {
    world.history.note({ kind: "healed", fault });
    return () => Promise.resolve();
  }
  return async () => {
    await heal();
    world.history.note({ kind: "healed", fault });
  };
}

/** Everything is healed: waits until each store was granted again, or should have been. */
async function calm(world: World): Promise<void> {
  const startMs = world.history.note({ kind: "calm" });
  // A little more than is allowed, so that the checker sees that it was too long.
  const endMs = startMs + world.recoveryMs + 2_000;
  let waiting = world.plan.stores;
  while (waiting.length > 0) {
    waiting = waiting.filter((store) => world.lastGrantMs(store) < startMs);
    if (bootTimeMs() > endMs) return say(`stuck: ${waiting.join(", ")}`);
    await Bun.sleep(100);
  }
}

/** Keeps what explains a failure: the history, its picture, the logs. */
function save(
  { plan }: World,
  { events, verdict, failed }: { events: Event[]; verdict: Verdict; failed: boolean },
): void {
  if (!failed && !values["keep-all"]) return;
  const keep = resolve(values.keep, `seed-${plan.seed}`);
  rmSync(keep, { recursive: true, force: true });
  mkdirSync(keep, { recursive: true });
  const lines = events.map((event) => JSON.stringify(event)).join("\n");
  writeFileSync(join(keep, "history.jsonl"), lines + "\n");
  writeFileSync(join(keep, "timeline.svg"), drawTimeline(events, verdict));
  for (const name of [...AGENT_NAMES, ...SERVER_NAMES]) {
    cpSync(join(plan.dir, name, "log"), join(keep, `${name}.log`));
  }
  say(`history, timeline and logs are in ${keep}`);
}

process.exit(await main());
