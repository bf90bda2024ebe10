/** Process numbers that are given out again: a journaled client is told from whoever has its number. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { NatsServer } from "../support/nats.ts";
import { AGENT } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/**
 * In a PID namespace of its own, where the next number can be chosen: a client is granted, the agent is
 * killed, then the client unless $1 is `lives`, and its number is given to another. What does the next
 * agent say to a guard? Prints its exit status.
 */
const SCRIPT = `
start() {
  "$AGENT" run --node alpha --nats "$NATS" --bucket "pids-$1" --ttl 30s --socket agent.sock \\
    --state-dir state --lock-path 'locks/{store}/lease.lock' 2>> log & agent=$!
  until "$AGENT" --socket agent.sock --check > /dev/null 2>&1; do sleep 0.02; done
}
mkdir -p locks/one; start "$1"
python3 -c '
import json, socket, time
agent = socket.socket(socket.AF_UNIX); agent.connect("agent.sock")
ask = {"jsonrpc": "2.0", "id": 1, "method": "guard", "params": {"store": "one"}}
agent.sendall(json.dumps(ask).encode() + b"\\n"); agent.recv(65536)
open("granted", "w").close(); time.sleep(1000)' & client=$!
until [ -e granted ]; do sleep 0.02; done
kill -KILL $agent; wait $agent
if [ "$1" != lives ]; then
  kill -KILL $client; wait $client
  echo $((client - 1)) > /proc/sys/kernel/ns_last_pid
  sleep 1000 & [ $! = $client ] || { echo "not reused: $! for $client"; exit 9; }
fi
start "$1"
"$AGENT" guard one --socket agent.sock -- true; echo "exit $?"`;

test.skipIf(process.getuid!() !== 0).each([
  // Granted at once: with a TTL of 30 s, a grace would not be over yet.
  ["is another's by now", "reused", 0],
  // So the check can fail.
  ["is still the client's", "lives", 75],
])("a restarted agent whose client's number %s", async (_, how, status) => {
  using dir = tempDir();
  const child = Bun.spawn({
    cmd: [
      ...["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"],
      ...["bash", "-c", SCRIPT, "bash", how],
    ],
    env: { PATH: process.env.PATH!, AGENT, NATS: server.url },
    cwd: dir.path,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "ignore",
  });
  const stdout = await new Response(child.stdout).text();
  expect(stdout).toBe(`exit ${status}\n`);
});
