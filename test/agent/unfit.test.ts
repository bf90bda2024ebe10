/** A store that one host cannot write goes to a host that can: real agents, real lock files. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { AgentError } from "../../src/client/mod.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, type RealAgentOptions, refusal, runClient } from "../support/real_agent.ts";
import { noSmallDisk, smallDisk } from "../support/small_disk.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

let server: NatsServer;
let buckets = 0;

beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** What happens here happens sooner than an entry ages out. */
const TTL = "15s";

function fleet() {
  const flags = ["--bucket", `unfit${++buckets}`, "--ttl", TTL];
  return (node: string, more: string[] = [], options: Partial<RealAgentOptions> = {}) =>
    RealAgent.start({ node, nats: server.url, flags: [...flags, ...more], ...options });
}

const NEWER = '{"store":"one","node":"x","epoch":9007199254740000}\n';

test.each<[string, string, string, (path: string) => void]>([
  ["is a symbolic link", "misconfigured", "lock_file", (path) => symlinkSync("/dev/null", path)],
  ["has other data in it", "misconfigured", "lock_file", (path) => writeFileSync(path, "a\nb\n")],
  ["is a directory", "misconfigured", "lock_file", (path) => mkdirSync(path)],
  ["has a newer epoch", "stale_epoch", "fence", (path) => writeFileSync(path, NEWER)],
])("a store whose lock file %s on one host is soon another's", async (_, kind, check, spoil) => {
  const start = fleet();
  // Without a grace, which a stale one's successor owes.
  await using alpha = await start("alpha", ["--grace", "0s"]);
  await using beta = await start("beta", ["--grace", "0s"]);
  const file = join(alpha.makeStore("one"), "lease.lock");
  beta.makeStore("one");
  spoil(file);
  const [here, there] = [await alpha.client(), await beta.client()];
  expect((await here.call("held", { store: "one" })).held).toBe(true);
  const waiting = there.call("guard", { store: "one", wait_ms: 120_000, wait_lease: true });
  await beta.logged("foreign", { store: "one" });
  expect((await refusal(here.call("guard", { store: "one" }))).kind).toBe(kind as "stale_epoch");
  expect((await here.call("held", { store: "one" })).held).toBe(false);
  const { node, token } = await waiting;
  expect(node).toBe("beta");
  // The write is sent to where it can be made, and who watches this host is told what is wrong here.
  const { error } = await refusal(here.call("guard", { store: "one" }));
  expect(error).toMatchObject({ kind: "not_holder", holder: { node: "beta" } });
  const { status, stdout } = await runClient(alpha, ["--check"]);
  expect([status, stdout]).toEqual([1, expect.stringMatching(new RegExp(`${check}: .*one`))]);
  // Mended, and the other gone: it is this host's again, and all is well.
  await there.call("release", { token });
  rmSync(file, { recursive: true });
  await there.call("stepdown", { store: "one", for_ms: 600_000 });
  expect((await here.call("guard", { store: "one" })).node).toBe("alpha");
  expect((await runClient(alpha, ["--check"])).status).toBe(0);
});

test("a store whose directory was copied from another's is told so, not that the coordinator lost its past", async () => {
  await using agent = await fleet()("alpha");
  const client = await agent.client();
  for (const store of ["copy", "original"]) {
    agent.makeStore(store);
    const { token } = await client.call("guard", { store });
    await client.call("release", { token });
  }
  copyFileSync(`${agent.locks}/original/lease.lock`, `${agent.locks}/copy/lease.lock`);
  const { kind, error } = await refusal(client.call("guard", { store: "copy" }));
  expect(kind).toBe("stale_epoch");
  expect(error.message).toContain("its lock file speaks of store original");
  expect(error.message).not.toContain("lost its past");
  // Its next epoch is above that one: nothing has to be mended.
  await until("it is granted", () => client.call("guard", { store: "copy" }).catch(() => false));
});

test("a store given at start whose directory is missing is let go, and held once it is made", async () => {
  const start = fleet();
  using dir = tempDir();
  const stores = join(dir.path, "stores");
  writeFileSync(stores, "one\n");
  await using pinned = await start("alpha", ["--stores", stores]);
  const client = await pinned.client();
  await pinned.logged("acquired", { store: "one" });
  expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("unknown_store");
  expect(await pinned.logged("released", { store: "one" })).toMatchObject({ clean: true });
  const asked = pinned.log().filter(({ event }) => event === "acquired").length;
  for (let i = 0; i < 20; i++) await refusal(client.call("guard", { store: "one" }));
  // Asking does not take it anew, only to give it back.
  expect(pinned.log().filter(({ event }) => event === "acquired").length).toBe(asked);
  pinned.makeStore("one");
  await client.call("guard", { store: "one" });
  await until("it is held", async () => (await client.call("held", { store: "one" })).held);
});

test.skipIf(noSmallDisk !== null)(
  "a host that cannot journal its grants lets go of the stores that it is asked to write, until it can",
  async () => {
    using disk = smallDisk(128 * 1_024);
    const start = fleet();
    await using alpha = await start("alpha", [], { state: join(disk.path, "state") });
    await using beta = await start("beta");
    for (const agent of [alpha, beta]) agent.makeStore("one");
    const [here, there] = [await alpha.client(), await beta.client()];
    disk.fill();
    // What is left of the journal's last block takes some grants yet.
    const { kind } = await until("nothing can be journaled", async () => {
      try {
        await here.call("release", { token: (await here.call("guard", { store: "one" })).token });
        return null;
      } catch (refused) {
        return refused as AgentError;
      }
    });
    expect(kind).toBe("misconfigured");
    expect((await here.call("held", { store: "one" })).held).toBe(false);
    const { token } = await there.call("guard", {
      store: "one",
      wait_ms: 60_000,
      wait_lease: true,
    });
    expect((await refusal(here.call("guard", { store: "one" }))).kind).toBe("not_holder");
    await there.call("release", { token });
    await there.call("stepdown", { store: "one", for_ms: 600_000 });
    disk.empty();
    expect((await here.call("guard", { store: "one" })).node).toBe("alpha");
    expect((await runClient(alpha, ["--check"])).status).toBe(0);
  },
);
