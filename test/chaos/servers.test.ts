/** The servers of a run. */
import { expect, test } from "bun:test";
import { natsServerPath } from "../support/nats.ts";
import { tempDir } from "../support/temp_dir.ts";
import { Loopback } from "./network.ts";
import { Servers } from "./servers.ts";

test("setPasswords() does not end a server that was started at the same moment", async () => {
  using dir = tempDir();
  const program = natsServerPath();
  const servers = await Servers.make({
    network: new Loopback(),
    names: ["s1", "s2", "s3"],
    programs: [program, program, program],
    dir: dir.path,
    passwords: new Map([["a1", "old"]]),
    syncAlways: false,
    disks: false,
  });
  try {
    for (const server of servers.all) servers.start(server);
    await servers.setPasswords(new Map([["a1", "new"]]));
    await servers.healthy();
    expect(servers.all.map(({ process }) => [process?.exitCode, process?.signalCode]))
      .toEqual([[null, null], [null, null], [null, null]]);
  } finally {
    for (const server of servers.all) await servers.stop(server);
    await servers.dispose();
  }
}, 120_000);
