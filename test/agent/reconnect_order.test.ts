/** Whose lease is renewed first when the connection is back. */
import { expect, test } from "bun:test";
import type { Client } from "../../src/agent/types.ts";
import { StandaloneCoordinator } from "../../src/standalone/coordinator.ts";
import { FakeTime } from "../support/fake_time.ts";
import { lockFiles, makeStore } from "../support/lock_files.ts";
import { plainAgent } from "../support/plain_agent.ts";
import { tempDir } from "../support/temp_dir.ts";

const HOW = { waitMs: 0, shared: false, waitLease: false, passLock: false, follow: false };

/** More than may be in flight at first. */
const STORES = Array.from({ length: 1_000 }, (_, i) => `s${i}`);

class Recorder extends StandaloneCoordinator {
  readonly puts: string[] = [];

  override putEntry(...[store, expect, done]: Parameters<StandaloneCoordinator["putEntry"]>): void {
    this.puts.push(store);
    super.putEntry(store, expect, done);
  }
}

test("first comes what is written or waited for, the others as there is room", async () => {
  using dir = tempDir();
  const time = new FakeTime();
  const locks = lockFiles(dir.path, time);
  const who = { node: "n", incarnation: "i", address: null };
  const coordinator = new Recorder({ ...who, epochOnDisk: () => 0 });
  const agent = plainAgent(time, { ttlMs: 15_000, ports: { coordinator, locks } });
  agent.setPinned(new Set(STORES));
  while (agent.counts().held < STORES.length) {
    await new Promise((resolve) => setImmediate(resolve));
    time.step();
  }
  makeStore(locks, "s900");
  const client = { id: 1, pid: process.pid, uid: 0, lost() {}, deadline() {} } as unknown as Client;
  await new Promise<void>((ok, fail) =>
    agent.guard(client, { store: "s900", ...HOW }, {
      ok: () => ok(),
      fail: ({ message }) => fail(new Error(message)),
    })
  );
  agent.setConnected(false);
  coordinator.puts.length = 0;
  agent.setConnected(true);
  expect(coordinator.puts[0]).toBe("s900");
  expect(coordinator.puts.length).toBeLessThan(STORES.length);
});
