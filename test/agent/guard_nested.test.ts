/** A guard in a guard on a real agent: nothing of either is left when both are ended. */
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { Cgroup } from "../../src/sys/cgroup.ts";
import { fleet, guardOne } from "../support/fleet.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";
import { isRunning, pidIn } from "../support/running.ts";
import { until } from "../support/wait.ts";

const probe = Cgroup.make("probe");
const groups = probe === null ? null : dirname(probe.path);
probe?.remove();

test.skipIf(groups === null)(
  "no cgroup is left of guards in guards whose agent was killed",
  async () => {
    await using server = await NatsServer.start();
    const alpha = await fleet(server.url, 3_000)("alpha");
    alpha.makeStore("two");
    const path = join(alpha.dir, "pid");
    const script = `trap '' TERM; echo $$ > ${path}; while :; do sleep 0.05; done`;
    const outer = guardOne(alpha, [AGENT, "guard", "two", "--", "sh", "-c", script]);
    const pid = await pidIn(path);
    reap(pid);
    const left = () =>
      readdirSync(groups!).filter((name) => name.startsWith(`zit-guard-${outer.pid}-`));
    expect(left()).toHaveLength(1);
    const inner = readdirSync(join(groups!, left()[0])).filter((name) =>
      name.startsWith("zit-guard-")
    );
    expect(inner).toHaveLength(1);
    await alpha.end("SIGKILL");
    expect(await outer.exited).toBe(79);
    expect(isRunning(pid)).toBe(false);
    // What was killed may take a moment to leave its group: then whoever makes the next removes it.
    await until("both are removed", () => {
      Cgroup.make("next")?.remove();
      return left().length === 0;
    });
  },
);
