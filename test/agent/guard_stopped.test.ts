/**
 * `agent guard` that was stopped (SIGSTOP, by whomever) for longer than the TTL and continued: what it
 * knows by then is long past, what it was told meanwhile waits to be read.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { fleet, type Guarded, guardOne } from "../support/fleet.ts";
import { freezeProcess } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import type { RealAgent } from "../support/real_agent.ts";
import { reapDir } from "../support/reaper.ts";
import { isRunning } from "../support/running.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 3_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** Says that it runs, and ends with 7 when it is told to. */
const SCRIPT = `echo $$ > "$0.tmp"; mv "$0.tmp" "$0.ran"
while [ ! -e "$0.end" ]; do sleep 0.02; done; exit 7`;

/** A guarded command that runs until it is told to end. */
class Command {
  readonly guard: Guarded;
  readonly #path: string;

  constructor(agent: RealAgent, flags: readonly string[] = []) {
    const dir = mkdtempSync(join(tmpdir(), "guard-stopped-"));
    reapDir(dir);
    this.#path = join(dir, "it");
    this.guard = guardOne(agent, ["sh", "-c", SCRIPT, this.#path], { flags });
  }

  get ran(): boolean {
    return existsSync(`${this.#path}.ran`);
  }

  async started(): Promise<number> {
    await until("the command runs", () => this.ran);
    return Number(readFileSync(`${this.#path}.ran`, "utf8"));
  }

  end(): void {
    writeFileSync(`${this.#path}.end`, "");
  }

  freeze(): void {
    freezeProcess(this.guard.pid);
  }

  thaw(): void {
    process.kill(this.guard.pid, "SIGCONT");
  }
}

/** Waits until whatever was granted by now has run out, but for renewals. */
async function untilFirstDeadlinesPassed(): Promise<void> {
  const untilMs = bootTimeMs() + 1.2 * TTL_MS;
  await until("a TTL is over", () => bootTimeMs() >= untilMs);
}

/** Waits until the agent renews the store's lease once more: by then who was continued has acted. */
async function untilRenewed(agent: RealAgent): Promise<void> {
  await agent.logged("renewed", {}, agent.log().length);
}

async function grantsAndWaiters(agent: RealAgent): Promise<readonly [number, number]> {
  const { counts } = await (await agent.client()).call("status", {});
  return [counts.grants, counts.waiters];
}

/** A guard that was stopped while it waited for its turn, and was granted since. */
async function grantedWhileStopped(agent: RealAgent): Promise<Command> {
  const first = new Command(agent);
  await first.started();
  const second = new Command(agent, ["--wait", "60s"]);
  await until("the second waits", async () => (await grantsAndWaiters(agent))[1] === 1);
  second.freeze();
  first.end();
  expect(await first.guard.exited).toBe(7);
  await until("the second is granted", async () => {
    const [grants, waiters] = await grantsAndWaiters(agent);
    return grants === 1 && waiters === 0;
  });
  return second;
}

test("guard() runs nothing when it is continued only after its lease went to another node", async () => {
  const start = fleet(server.url, TTL_MS);
  await using alpha = await start("alpha");
  await using beta = await start("beta");
  const late = await grantedWhileStopped(alpha);
  alpha.signal("SIGSTOP");
  const next = new Command(beta, ["--wait-lease", "--wait", "60s"]);
  await next.started();
  late.thaw();
  expect(await late.guard.exited).toBe(79);
  expect(late.ran).toBe(false);
  const told = await late.guard.stderr;
  expect(told).toContain("lease on one");
  expect(told).toContain("nothing was run");
  next.end();
  expect(await next.guard.exited).toBe(7);
});

test("guard() runs nothing when the agent tells that the lease was lost while it stood", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const late = await grantedWhileStopped(alpha);
  server.freeze();
  try {
    await alpha.logged("lost");
  } finally {
    server.thaw();
  }
  late.thaw();
  expect(await late.guard.exited).toBe(79);
  expect(late.ran).toBe(false);
  const told = await late.guard.stderr;
  expect(told).toContain("nothing was run");
  expect(told).not.toContain("what was written");
  await until("its grant is given back", async () => (await grantsAndWaiters(alpha))[0] === 0);
});

test("guard() runs its command when it was granted long ago, and the agent renewed since", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const late = await grantedWhileStopped(alpha);
  await untilFirstDeadlinesPassed();
  late.thaw();
  await late.started();
  await untilRenewed(alpha);
  late.end();
  expect(await late.guard.exited).toBe(7);
  expect(await late.guard.stderr).toBe("");
});

test("guard() reads an answer that came in time, though its own patience ended while it stood", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const first = new Command(alpha);
  await first.started();
  const second = new Command(alpha, ["--wait", "8s"]);
  await until("the second waits", async () => (await grantsAndWaiters(alpha))[1] === 1);
  second.freeze();
  first.end();
  await first.guard.exited;
  const untilMs = bootTimeMs() + 14_000; // its wait, and as long as an answer may take
  await until("it would wait no more", () => bootTimeMs() >= untilMs);
  second.thaw();
  await second.started();
  second.end();
  expect(await second.guard.exited).toBe(7);
});

test("guard() that is continued after the deadline that it knew does not end a command whose lease was renewed", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const command = new Command(alpha);
  await command.started();
  command.freeze();
  await untilFirstDeadlinesPassed();
  command.thaw();
  await untilRenewed(alpha);
  command.end();
  expect(await command.guard.exited).toBe(7);
  expect(await command.guard.stderr).toBe("");
});

test("guard() passes the status on of a command that ended in time while it stood", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const command = new Command(alpha);
  const pid = await command.started();
  command.freeze();
  command.end();
  await until("the command has ended", () => !isRunning(pid));
  await untilFirstDeadlinesPassed();
  command.thaw();
  expect(await command.guard.exited).toBe(7);
  expect(await command.guard.stderr).toBe("");
});

test("guard() does not vouch for a command that ended while it stood, and its agent, too", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const command = new Command(alpha);
  const pid = await command.started();
  command.freeze();
  alpha.signal("SIGSTOP");
  await untilFirstDeadlinesPassed();
  await until("the command was ended", () => !isRunning(pid));
  command.thaw();
  expect(await command.guard.exited).toBe(79);
});

for (const killAfter of ["0s", "100ms"]) {
  test(`guard() --kill-after ${killAfter}: the command lives on while the guard stands and the agent renews`, async () => {
    await using alpha = await fleet(server.url, TTL_MS)("alpha");
    const command = new Command(alpha, ["--kill-after", killAfter]);
    const pid = await command.started();
    command.freeze();
    await untilFirstDeadlinesPassed();
    expect(isRunning(pid)).toBe(true);
    command.thaw();
    await untilRenewed(alpha);
    command.end();
    expect(await command.guard.exited).toBe(7);
  });
}
