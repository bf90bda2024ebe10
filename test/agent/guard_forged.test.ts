/** The agent ends what guards left, but by nobody's word about another user's processes. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fleet, guardStore } from "../support/fleet.ts";
import { NatsServer } from "../support/nats.ts";
import { reap } from "../support/reaper.ts";
import { isRunning, pidIn } from "../support/running.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 3_000;

/** Debian's nobody. */
const NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

/**
 * Is older than the victim's guard, waits for its mark, is granted store two, and becomes a program that
 * says it runs under that guard with this grant: which closes the connection, and keeps the lock.
 */
const FORGER = `
import hashlib, json, os, socket, sys, time
path, mark_file = sys.argv[1:3]
while not os.path.exists(mark_file): time.sleep(0.02)
agent = socket.socket(socket.AF_UNIX)
agent.connect(path)
params = {"store": "two", "pass_lock": True}
agent.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "guard", "params": params}).encode() + b"\\n")
line, fds, _, _ = socket.recv_fds(agent, 65536, 4)
for fd in fds: os.set_inheritable(fd, True)
token = json.loads(line.split(b"\\n")[0])["result"]["token"]
signed = open(mark_file).read() + "." + hashlib.sha256(token.encode()).hexdigest()[:16]
env = {"PATH": "/usr/bin:/bin", "ZIT_LEASE_TOKEN": token, "ZIT_LEASE_GUARDS": signed}
os.execvpe("sleep", ["sleep", "600"], env)
`;

/** Gets a grant with its lock for store `two`, and starts a child with both; tells both numbers. */
const CLIENT = `
import json, os, socket, subprocess, sys, time
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["ZIT_AGENT_SOCKET"])
params = {"store": "two", "pass_lock": True}
agent.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "guard", "params": params}).encode() + b"\\n")
line, fds, _, _ = socket.recv_fds(agent, 65536, 4)
for fd in fds: os.set_inheritable(fd, True)
env = {**os.environ, "ZIT_LEASE_STORE": "two", "ZIT_LEASE_TOKEN": json.loads(line.split(b"\\n")[0])["result"]["token"]}
child = subprocess.Popen(["sleep", "600"], close_fds=False, env=env)
with open(sys.argv[1] + ".tmp", "w") as told: told.write(f"{os.getpid()} {child.pid}\\n")
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
time.sleep(600)
`;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

const isRoot = process.getuid!() === 0;

test.if(isRoot)(
  "a user who claims the mark of another's guard for his own grant ends nothing of it",
  async () => {
    await using alpha = await fleet(server.url, TTL_MS)("alpha");
    alpha.makeStore("two");
    chmodSync(alpha.dir, 0o755);
    chmodSync(alpha.socket, 0o666);
    const [markFile, pidFile] = [join(alpha.dir, "mark"), join(alpha.dir, "pid")];
    const forger = Bun.spawn([...NOBODY, "python3", "-c", FORGER, alpha.socket, markFile], {
      env: { PATH: "/usr/bin:/bin" }, // what is in a PATH of root's may be root's alone
      stdout: "ignore",
      stderr: "inherit",
    });
    reap(forger.pid);
    await until(
      "the forger is another user's",
      () => readFileSync(`/proc/${forger.pid}/status`, "utf8").includes("Uid:\t65534"),
    );
    const guard = guardStore(alpha, "one", ["sh", "-c", `echo $$ > ${pidFile}; sleep 600; :`]);
    const pid = await pidIn(pidFile);
    const environment = readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
    const marks = environment.find((each) => each.startsWith("ZIT_LEASE_GUARDS="))!;
    // What anybody can read in the cgroup's name, where one could be made.
    writeFileSync(markFile, /=([0-9a-f]+)\./.exec(marks)![1]!);
    const killed = await alpha.logged("leftovers_killed", { store: "two" });
    expect(killed.pids).toEqual([forger.pid]);
    expect(isRunning(pid)).toBe(true);
    expect(isRunning(guard.pid)).toBe(true);
    expect(alpha.log().filter(({ event }) => event === "leftovers_alive")).toEqual([]);
    guard.kill("SIGTERM");
    expect(await guard.exited).toBe(143);
  },
);

/** What a command may do to the environment in which its guard's token is. */
const COMMANDS: [string, string[]][] = [
  ["keeps", []],
  ["unsets", ["env", "-u", "ZIT_LEASE_TOKEN"]],
];

test.each(COMMANDS)(
  "a command that %s its token does not end with what a client that it ran has left",
  async (_, env) => {
    await using alpha = await fleet(server.url, TTL_MS)("alpha");
    alpha.makeStore("two");
    const [pidFile, clientFile] = [join(alpha.dir, "pid"), join(alpha.dir, "client")];
    const script = `echo $$ > ${pidFile}; python3 -c "$0" ${clientFile}; sleep 600; :`;
    const guard = guardStore(alpha, "one", [...env, "sh", "-c", script, CLIENT]);
    const pid = await pidIn(pidFile);
    const told = await until(
      "the client was granted",
      () => existsSync(clientFile) && readFileSync(clientFile, "utf8"),
    );
    const [client, child] = told.split(" ").map(Number) as [number, number];
    [pid, client, child].forEach(reap);
    process.kill(client, "SIGKILL");
    expect((await alpha.logged("leftovers_alive", { store: "two" })).pids).toEqual([child]);
    expect([pid, child, guard.pid].filter(isRunning)).toEqual([pid, child, guard.pid]);
    expect(alpha.log().filter(({ event }) => event === "leftovers_killed")).toEqual([]);
    guard.kill("SIGTERM");
    expect(await guard.exited).toBe(143);
  },
);
