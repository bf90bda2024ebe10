/**
 * The lock of a store that many wait for: it goes from grant to grant, but not past those who have it,
 * and not past others on the host who wait for it.
 */
import { expect, test } from "bun:test";
import { closeSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { openSocket } from "../../src/client/connect.ts";
import { requestLocked } from "../../src/cli/guard/locked_grant.ts";
import { child } from "../support/child.ts";
import { RealAgent, refusal } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const WAIT = { store: "s", wait_ms: 20_000 };

test(
  "grants in a row each have their own line in the lock file, and others get the lock, too",
  async () => {
    await using agent = await RealAgent.start({ node: "alpha" });
    const lock = join(agent.makeStore("s"), "lease.lock");
    let stop = false;
    let grants = 0;
    const work = Array.from({ length: 4 }, async () => {
      const client = await agent.client();
      while (!stop) {
        const { token } = await client.call("guard", WAIT);
        expect(JSON.parse(readFileSync(lock, "utf8"))).toMatchObject({
          store: "s",
          pid: process.pid,
        });
        await client.call("release", { token });
        grants++;
      }
    });
    await until("guards are under way", () => grants > 100);
    // Several of them: that one gets it might be luck.
    for (let i = 0; i < 5; i++) {
      await using other = child(["flock", "-w", "10", lock, "true"]);
      expect(await other.ended()).toBe(0);
    }
    stop = true;
    await Promise.all(work);
  },
  60_000,
);

test("the next in turn waits for the child that has the lock of the grant before (ceph-qa-suite#583)", async () => {
  await using agent = await RealAgent.start({ node: "alpha" });
  agent.makeStore("s");
  const params = { ...WAIT, pass_lock: true, wait_lease: false, shared: false, follow: false };
  const socket = await openSocket({ socket: agent.socket });
  const first = await requestLocked(socket, {
    method: "guard",
    params,
    path: agent.socket,
    withinMs: 10_000,
  });
  const next = await agent.client();
  const refused = refusal(next.call("guard", { store: "s", wait_ms: 500 }));
  await until("it waits", async () => (await next.call("status", {})).counts.waiters === 1);
  const { token } = first.result;
  await first.connection.call("release", { token });
  expect((await refused).kind).toBe("busy");
  closeSync(first.lockFd!);
  await next.call("guard", WAIT);
  await first.connection.close();
});

test("the next in turn gets the new lock file when the old one was replaced meanwhile", async () => {
  await using agent = await RealAgent.start({ node: "alpha" });
  const directory = agent.makeStore("s");
  const client = await agent.client();
  const { token } = await client.call("guard", WAIT);
  const next = client.call("guard", WAIT);
  await until("it waits", async () => (await client.call("status", {})).counts.waiters === 1);
  renameSync(directory, `${directory}-old`);
  agent.makeStore("s");
  await client.call("release", { token });
  await next;
  expect(JSON.parse(readFileSync(join(directory, "lease.lock"), "utf8")).store).toBe("s");
});
