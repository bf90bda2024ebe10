/** The state directory is taken away from a running agent, by one way or another, and given back. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { AgentError, Connection } from "../../src/client/mod.ts";
import { again, fleet, notificationsOf, type StartAgent } from "../support/fleet.ts";
import { NatsServer } from "../support/nats.ts";
import { type RealAgent, runClient } from "../support/real_agent.ts";
import { noSmallDisk, smallDisk } from "../support/small_disk.ts";
import { tempDir } from "../support/temp_dir.ts";

const TTL_MS = 3_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** How a directory is made unwritable, and writable again; `why` is what is said of it. */
interface Way {
  readonly why: string;
  readonly take: (state: string) => void;
  readonly giveBack: (state: string) => void;
}

/** The kernel refuses writes through descriptors that are open already, as on a disk made read-only. */
function immutable(state: string, sign: "+i" | "-i"): boolean {
  const paths = [state, ...readdirSync(state).map((name) => join(state, name))];
  return Bun.spawnSync(["chattr", sign, ...paths], { stderr: "ignore" }).success;
}

const cannotBeImmutable = (() => {
  using dir = tempDir();
  const can = immutable(dir.path, "+i");
  return !can || !immutable(dir.path, "-i");
})();
if (cannotBeImmutable) console.warn("A test with an immutable directory is skipped");

/** Guards until it is refused: a full disk has room in pages that are begun, for some lines more. */
async function firstRefusal(client: Connection, store: string): Promise<AgentError> {
  for (;;) {
    try {
      const { token } = await client.call("guard", { store });
      await client.call("release", { token });
    } catch (error) {
      return error as AgentError;
    }
  }
}

/** Takes it away while a grant is out, and looks at what happens until it is back. */
async function check(agent: RealAgent, way: Way): Promise<void> {
  const client = await agent.client();
  const seen = notificationsOf(client);
  const held = await client.call("guard", { store: "one" });
  agent.makeStore("two");
  way.take(agent.state);
  const { kind, message } = await firstRefusal(client, "two");
  expect([kind, message]).toEqual(["misconfigured", expect.stringContaining(way.why)]);
  expect(message).toContain(agent.state);
  const unhealthy = await runClient(agent, ["--check"]);
  expect([unhealthy.status, unhealthy.stdout]).toEqual([1, expect.stringContaining("state_dir")]);
  // What was granted goes on: it is renewed, proven and given back.
  for (let renewals = 0; renewals < 4; renewals++) {
    await agent.logged("renewed", {}, agent.log().length);
  }
  expect(await client.call("verify", { store: "one", token: held.token })).toMatchObject({
    epoch: held.epoch,
  });
  expect(await client.call("release", { token: held.token })).toEqual({});
  expect((await firstRefusal(client, "one")).kind).toBe("misconfigured");
  way.giveBack(agent.state);
  for (const store of ["one", "two"]) {
    const { token } = await client.call("guard", { store });
    await client.call("release", { token });
  }
  const healthy = await runClient(agent, ["--check"]);
  expect([healthy.status, healthy.stdout]).toEqual([0, expect.any(String)]);
  expect(seen).toEqual([]);
}

/** The next agent grants at once: the journal has no grant that ended while nothing could be written. */
async function checkMemory(agent: RealAgent, start: StartAgent): Promise<void> {
  await agent.end("SIGKILL");
  await using second = await start("alpha", again(agent));
  expect((await runClient(second, ["guard", "one", "--", "true"])).status).toBe(0);
}

test.skipIf(cannotBeImmutable)(
  "a state directory that can no longer be written refuses new grants, keeps the old, and recovers",
  async () => {
    using dir = tempDir();
    const state = join(dir.path, "state");
    const start = fleet(server.url, TTL_MS);
    await using agent = await start("alpha", { state });
    try {
      await check(agent, {
        why: "operation not permitted",
        take: (path) => void immutable(path, "+i"),
        giveBack: (path) => void immutable(path, "-i"),
      });
      await checkMemory(agent, start);
    } finally {
      immutable(state, "-i");
    }
  },
);

test.skipIf(noSmallDisk !== null)(
  "a disk that fills up under grants refuses new ones, keeps the old, and recovers",
  async () => {
    using disk = smallDisk(256 * 1_024);
    const start = fleet(server.url, TTL_MS);
    await using agent = await start("alpha", { state: join(disk.path, "state") });
    await check(agent, {
      why: "no space left on device",
      take: () => disk.fill(),
      giveBack: () => disk.empty(),
    });
    await checkMemory(agent, start);
  },
);
