import { describe, expect, test } from "bun:test";
import { askSyncing, judgeSyncing } from "../../src/nats/syncing.ts";
import { Admin } from "../support/admin.ts";
import { NatsCluster, NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

/** The agents' account is shown how the servers are set up, as docs/operations.md has it. */
const SHOWN = `
  accounts {
    SYS { exports: [{ service: "$SYS.REQ.SERVER.PING.JSZ", response: stream, accounts: [APP] }] }
    APP {
      jetstream: enabled
      users: [{ user: agent, password: pw }]
      imports: [{ service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ" } }]
    }
  }
  system_account: SYS`;

const CREDENTIALS = { user: "agent", pass: "pw" };

async function connectTo(server: NatsServer): Promise<Subject> {
  const passwordFile = `${server.dir}/password`;
  await Bun.write(passwordFile, "pw\n");
  return await Subject.connect({
    urls: [server.url],
    credentials: { user: "agent", passwordFile },
  });
}

const checks = (subject: Subject) => subject.nats.warnings.map(({ check }) => check);

describe("judgeSyncing()", () => {
  const answer = (name: string, always?: boolean) => ({
    server: { name },
    data: { config: { sync_interval: 120e9, ...(always ? { sync_always: true } : {}) } },
  });

  test("knows nothing from nobody, nor from answers without a configuration", () => {
    expect(judgeSyncing([])).toEqual({ told: false, finding: null });
    expect(judgeSyncing([{ server: { name: "n1" }, data: {} }, {}]))
      .toEqual({ told: false, finding: null });
  });

  test("is content when all sync each write", () => {
    expect(judgeSyncing([answer("n1", true), answer("n2", true)]))
      .toEqual({ told: true, finding: null });
  });

  test("names the servers that do not, in the same order whoever answers first", () => {
    const { finding } = judgeSyncing([answer("n3"), answer("n1", true), answer("n2")]);
    expect(finding?.message).toContain("n2 (every 120s), n3 (every 120s)");
    expect(finding?.message).not.toContain("n1");
  });
});

describe("askSyncing()", () => {
  test("is told by each server of a cluster", async () => {
    await using cluster = await NatsCluster.start(3, SHOWN);
    await using admin = await Admin.connect(cluster.urls[0], CREDENTIALS);
    const { told, finding } = await askSyncing(admin.nc);
    expect(told).toBe(true);
    expect(finding?.message).toContain("n1 (every 120s), n2 (every 120s), n3 (every 120s)");
  }, TEST_MS);

  test("is told of a server that syncs each write", async () => {
    await using server = await NatsServer.start({
      config: SHOWN,
      jetstreamConfig: "sync_interval: always",
    });
    await using admin = await Admin.connect(server.url, CREDENTIALS);
    expect(await askSyncing(admin.nc)).toEqual({ told: true, finding: null });
  });

  test("is told nothing where nobody exports it", async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    expect(await askSyncing(admin.nc)).toEqual({ told: false, finding: null });
  });
});

describe("NatsCoordinator", () => {
  test("warns of a late sync where it may see it", async () => {
    await using server = await NatsServer.start({ config: SHOWN });
    await using subject = await connectTo(server);
    await until("it is seen", () => checks(subject).includes("sync_interval"));
    const { message } = subject.nats.warnings.find(({ check }) => check === "sync_interval")!;
    expect(message).toContain("n1 (every 120s)");
    expect(message).toContain("sync_interval: always");
    // A warning, not a fault; and told, not only kept.
    expect(subject.told.ready.at(-1)?.warnings.map(({ check }) => check))
      .toContain("sync_interval");
    expect((await subject.put("s", 0)).kind).toBe("ok");
  }, TEST_MS);

  test("calls nothing wrong where it may not ask", async () => {
    await using server = await NatsServer.start({
      config: `authorization { users: [{ user: agent, password: pw,
         permissions: { publish: { allow: ">", deny: "$SYS.>" } } }] }`,
    });
    await using subject = await connectTo(server);
    await until("it was denied", () => /Publish Violation.*JSZ/.test(server.log()));
    expect((await subject.put("s", 0)).kind).toBe("ok");
    expect(checks(subject)).toEqual([]);
    expect(subject.told.problems).toEqual([]);
    expect(subject.told.denials.filter((denial) => denial !== null)).toEqual([]);
    expect(subject.told.connections).toEqual([true]);
  }, TEST_MS);
});
