/** A restarted agent takes up again, with nobody asking, what clients of the one before may still write. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { again, fleet, guardOne } from "../support/fleet.ts";
import { killTogether } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import { type RealAgent, runClient } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";
import { isRunning, pidIn } from "../support/running.ts";
import { until } from "../support/wait.ts";
import { watchdogOf } from "../support/watchdog_of.ts";

const TTL_MS = 3_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

const renewals = (agent: RealAgent, store: string) =>
  agent.log().filter((line) => line.event === "renewed" && line.store === store).length;

test("no other node is granted while a command of a guard runs that was killed with its agent, and that again", async () => {
  const start = fleet(server.url, TTL_MS);
  await using beta = await start("beta");
  const first = await start("alpha");
  const [pidFile, enough] = [join(first.dir, "pid"), join(first.dir, "enough")];
  const guard = guardOne(first, [
    "sh",
    "-c",
    `echo $$ > ${pidFile}; while ! test -e ${enough}; do sleep 0.05; done`,
  ]);
  const pid = await pidIn(pidFile);
  reap(pid);
  killTogether([first.pid, guard.pid, watchdogOf(guard.pid, [pid])]);
  await first.exited();
  const next = guardOne(beta, ["test", "-e", enough], {
    flags: ["--wait-lease", "--wait", "120s"],
  });
  // Interest that is over long before the command: what it holds keeps the lease.
  const more = { ...again(first), flags: ["--interest", "1s"] };
  const second = await start("alpha", more);
  second.makeStore("two");
  // Longer than a TTL: all that it left should have been ended by then. What is past is forgotten at grants.
  await until("alpha renews", () => renewals(second, "one") >= 4);
  expect((await runClient(second, ["guard", "two", "--", "true"])).status).toBe(0);
  await second.end("SIGKILL");
  await using alpha = await start("alpha", more);
  // Three TTLs: without a renewal, the other's would begin after two.
  await until("alpha renews", () => renewals(alpha, "one") >= 9);
  expect(isRunning(pid)).toBe(true);
  expect(beta.log().filter(({ event }) => event === "granted")).toEqual([]);
  writeFileSync(enough, "");
  expect(await next.exited).toBe(0);
  await alpha.logged("released", { store: "one" });
});

test("hundreds of stores are taken up in time, and not those whose grants were over", async () => {
  const start = fleet(server.url, TTL_MS);
  const first = await start("alpha");
  const client = await first.client();
  const stores = Array.from({ length: 300 }, (_, i) => `s${i}`);
  for (const store of [...stores, "over"]) first.makeStore(store);
  const { token } = await client.call("guard", { store: "over", pass_lock: true });
  await client.call("release", { token });
  // We live on: half of them are wanted for that alone, half for what may hold the lock as well.
  await Promise.all(
    stores.map((store, i) => client.call("guard", { store, pass_lock: i % 2 === 0 })),
  );
  await first.end("SIGKILL");
  await using alpha = await start("alpha", again(first));
  await until("all are taken up", () => {
    const acquired = new Set(
      alpha.log().filter(({ event }) => event === "acquired")
        .map(({ store }) => store),
    );
    return stores.every((store) => acquired.has(store));
  });
  // Held since: had an entry run out, another could have had the store.
  const log = alpha.log();
  expect(log.filter(({ event }) => event === "lost" || event === "foreign")).toEqual([]);
  const { leases } = await (await alpha.client()).call("leases", {});
  expect(leases.map(({ store }) => store).toSorted()).toEqual(stores.toSorted());
});

test("a client that lives on has its store taken up at the next start, and not at each later one", async () => {
  const start = fleet(server.url, TTL_MS);
  const first = await start("alpha");
  await (await first.client()).call("guard", { store: "one" }); // we live on
  await first.end("SIGKILL");
  const more = { ...again(first), flags: ["--interest", "1s"] };
  const second = await start("alpha", more);
  await second.logged("acquired", { store: "one" });
  const lines = () => readFileSync(join(first.state, "grants"), "utf8").trim().split("\n");
  const isOut = () => JSON.parse(lines().at(-1)!).value !== undefined;
  expect(isOut()).toBe(true);
  await until("its time is over", () => !isOut());
  await second.end("SIGTERM");
  await using third = await start("alpha", more);
  third.makeStore("two");
  expect((await runClient(third, ["guard", "two", "--", "true"])).status).toBe(0);
  const acquired = third.log().filter(({ event }) => event === "acquired");
  expect(acquired.map(({ store }) => store)).toEqual(["two"]);
});
