/**
 * Wall clocks that are set: a server's moves the end of leases, and the grace has to cover it; an
 * agent's moves nothing.
 */
import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { faketimePath } from "../chaos/agents.ts";
import { canStepServers, stepWallClock } from "../chaos/wall_clock.ts";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;
const TTL_MS = 3_000;
const FLAGS = ["--ttl", `${TTL_MS}ms`];

/** Steps a server's clock while it stands still. */
function step(server: NatsServer, seconds: number): void {
  server.freeze();
  stepWallClock(server.pid, seconds);
  server.thaw();
}

describe.skipIf(!canStepServers)("a server's wall clock", () => {
  test(
    "that jumps ahead expires a live lease, and nobody is granted before its deadline",
    async () => {
      await using server = await NatsServer.start();
      await using alpha = await RealAgent.start({ node: "alpha", nats: server.url, flags: FLAGS });
      await using beta = await RealAgent.start({ node: "beta", nats: server.url, flags: FLAGS });
      for (const agent of [alpha, beta]) agent.makeStore("one");
      const holder = await alpha.client();
      const { token } = await holder.call("guard", { store: "one" });
      const client = await beta.client();
      const waiting = client.call("guard", { store: "one", wait_ms: 30_000, wait_lease: true })
        .then((grant) => ({ grant, atMs: bootTimeMs() }));
      await beta.logged("foreign", { store: "one" });
      // The server looks for expired entries when the oldest is due by its clock as it was: this one.
      await using admin = await Admin.connect(server.url);
      await admin.put("leases", "oldest", "somebody");
      const renewals = () => alpha.log().filter(({ event }) => event === "renewed").length;
      const before = renewals();
      await until("it was renewed twice since", () => renewals() >= before + 2);
      const askedMs = bootTimeMs();
      const { remaining_ms } = await holder.call("verify", { token, store: "one" });
      const deadlineMs = askedMs + remaining_ms;
      // Frozen, or it would notice at its next renewal: the worst case for whoever writes under it.
      alpha.signal("SIGSTOP");
      step(server, 60);
      await beta.logged("acquired", { store: "one" });
      expect(bootTimeMs()).toBeLessThan(deadlineMs); // Else the server's clock did nothing.
      const { atMs } = await waiting;
      expect(atMs).toBeGreaterThan(deadlineMs);
      expect(beta.log().some(({ event }) => event === "grace")).toBe(true);
      alpha.signal("SIGCONT");
    },
    TEST_MS,
  );

  test(
    "that was ahead and is put right keeps a dead holder's entry, which --check names",
    async () => {
      await using server = await NatsServer.start();
      await using beta = await RealAgent.start({ node: "beta", nats: server.url, flags: FLAGS });
      beta.makeStore("one");
      {
        await using alpha = await RealAgent.start({
          node: "alpha",
          nats: server.url,
          flags: FLAGS,
        });
        alpha.makeStore("one");
        step(server, 3_600);
        await (await alpha.client()).call("guard", { store: "one" });
      }
      step(server, 0);
      const client = await beta.client();
      expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("not_holder");
      const { stdout, status } = await until("--check names it", async () => {
        const check = await runClient(beta, ["--check"]);
        return /stuck: .*one/.test(check.stdout) && check;
      });
      expect([status, stdout]).toEqual([1, expect.stringContaining("unhealthy")]);
    },
    TEST_MS,
  );

  test("that goes back an hour loses nothing that is renewed", async () => {
    await using server = await NatsServer.start();
    await using alpha = await RealAgent.start({ node: "alpha", nats: server.url, flags: FLAGS });
    alpha.makeStore("one");
    const client = await alpha.client();
    const { token, epoch } = await client.call("guard", { store: "one" });
    step(server, -3_600);
    const renewals = () => alpha.log().filter(({ event }) => event === "renewed").length;
    const before = renewals();
    await until("it is renewed for more than a TTL", () => renewals() > before + 4);
    expect(await client.call("verify", { token, store: "one" })).toMatchObject({ epoch });
  }, TEST_MS);
});

test.skipIf(faketimePath() === null)(
  "an agent's wall clock that is set by an hour, there and back, moves no deadline (etcd#12291)",
  async () => {
    using dir = tempDir();
    const clock = join(dir.path, "clock");
    writeFileSync(clock, "+0s\n");
    await using server = await NatsServer.start();
    await using alpha = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: FLAGS,
      env: {
        LD_PRELOAD: faketimePath()!,
        FAKETIME_TIMESTAMP_FILE: clock,
        FAKETIME_CACHE_DURATION: "1",
        FAKETIME_DONT_FAKE_MONOTONIC: "1",
        DONT_FAKE_MONOTONIC: "1",
        FAKETIME_DONT_RESET: "1",
      },
    });
    alpha.makeStore("one");
    const client = await alpha.client();
    const { token, epoch } = await client.call("guard", { store: "one" });
    for (const seconds of [3_600, -3_600]) {
      writeFileSync(clock, `${seconds < 0 ? "" : "+"}${seconds}s\n`);
      // Its log tells that it believes it.
      await until("its clock is off", () => {
        const offMs = Date.parse(alpha.log().at(-1)!.time) - Date.now();
        return Math.abs(offMs - seconds * 1_000) < 60_000;
      });
      const before = alpha.log().length;
      const renewed = () =>
        alpha.log().slice(before).filter(({ event }) => event === "renewed").length;
      await until("it is renewed for a TTL", () => renewed() >= 3);
      const { epoch: now, remaining_ms } = await client.call("verify", { token, store: "one" });
      expect(now).toBe(epoch);
      expect(remaining_ms).toBeGreaterThan(0);
      expect(remaining_ms).toBeLessThanOrEqual(TTL_MS);
    }
    expect(alpha.log().some(({ event }) => event === "lost")).toBe(false);
  },
  TEST_MS,
);
