/** The question for a grant with its lock, where the agent does not live to answer it. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { requestLocked } from "../../../src/cli/guard/locked_grant.ts";
import { openSocket } from "../../../src/client/connect.ts";
import { python } from "../../support/child.ts";
import { isRunning } from "../../support/running.ts";
import { refusal } from "../../support/real_agent.ts";
import { tempDir } from "../../support/temp_dir.ts";

/** Takes one connection and ends before it has read what it was told. */
const DEAF = `
import select, socket, sys
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen(); print("listens")
connection, _ = server.accept(); select.select([connection], [], [])`;

test("requestLocked() tells of an agent that was killed before it read the question", async () => {
  using dir = tempDir();
  const path = join(dir.path, "agent.sock");
  await using agent = python(DEAF, path);
  await agent.line();
  const socket = await openSocket({ socket: path });
  socket.write("\n");
  // Without giving way to the runtime, which sees the end of a connection as well: here it is the
  // read that meets it. Closed with something unread, a Unix socket resets its peer.
  while (isRunning(agent.pid)) Bun.sleepSync(5);
  const { error } = await refusal(
    requestLocked(socket, { method: "guard", params: { store: "one" }, path, withinMs: 20_000 }),
  );
  expect(error.exit).toBe(69);
  expect(error.message).toContain("closed the connection before it answered");
});
