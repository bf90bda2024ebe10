/**
 * What others wrote into the coordinator reaches an operator's terminal, and the log, as text: it
 * cannot move the cursor, colour, hide or reverse what stands there.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { createServer } from "node:net";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { headers } from "@nats-io/transport-node";
import { checkLine } from "../../src/cli/check_line.ts";
import { visible } from "../../src/sys/visible.ts";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { onTerminal } from "../support/terminal.ts";

/** Clears the screen, renames the window, hides, goes on from right to left. */
const ATTACK = "evil\x1b[2J\x1b]0;owned\x07\x9b31m\u200b\u202egnp.exe\r";
const SHOWN = visible(ATTACK);
/** A header's value can have no line ends. */
const ADDRESS = "at\x1b[8m\u2066hidden";

let server: NatsServer;
let agent: RealAgent;

beforeAll(async () => {
  server = await NatsServer.start();
  agent = await RealAgent.start({
    node: "victim",
    nats: server.url,
    // Their entries are to stay for the time of these tests.
    flags: ["--ttl", "2m", "--log-format", "text"],
    awaitReady: false,
  });
  await agent.logged("not JSON"); // it writes text
  await using admin = await Admin.connect(server.url);
  await until(async () => (await runClient(agent, ["--check"])).status === 0);
  const theirs = headers();
  theirs.set("Zit-Incarnation", "x");
  theirs.set("Zit-Address", ADDRESS);
  const reply = await admin.nc.request("$KV.leases.store", ATTACK, {
    headers: theirs,
    timeout: 10_000,
  });
  const tenure = {
    node: ATTACK,
    incarnation: "x",
    address: ADDRESS,
    epoch: reply.json<{ seq: number }>().seq,
    acquired_at: ATTACK,
    released_at: ATTACK,
    reason: ATTACK,
  };
  await admin.put("leases-tenures", "store", JSON.stringify(tenure));
  await admin.put("leases", "k\x1b[31m\u202e", ATTACK);
  agent.makeStore("store");
});
afterAll(async () => {
  await agent[Symbol.asyncDispose]();
  await server.stop();
});

async function until(look: () => Promise<boolean>): Promise<void> {
  while (!(await look())) await Bun.sleep(20);
}

/** Nothing hidden but the ends of lines, and, where `colours` are, our own. */
function expectVisible(text: string, { colours = false } = {}): void {
  // deno-lint-ignore no-control-regex
  const plain = colours ? text.replace(/\x1b\[(?:0|1|2|31|32|33)m/g, "") : text;
  for (const line of plain.split(colours ? /\r?\n/ : "\n")) expect(line).toBe(visible(line));
}

test.each([
  ["guard", "store", "--", "true"],
  ["guard", "store", "--wait", "1s", "--", "true"],
  ["holder", "store"],
  ["history", "store"],
  ["leases"],
  ["leases", "--node", ATTACK],
  ["status"],
  ["--check"],
  ["holder", ATTACK],
  ["guard", "store", "--", ATTACK],
  ["guard", "store", "--unguarded", ATTACK, "--", "true"],
  [ATTACK],
  ["status", `--${ATTACK}`],
  ["stepdown", ATTACK],
].map((args) => [args.join(" ").replaceAll(ATTACK, "ATTACK"), args] as const))(
  "agent %s shows what others wrote as text",
  async (_, args) => {
    const { stdout, stderr } = await runClient(agent, args);
    expectVisible(stdout);
    expectVisible(stderr);
    const [command, store] = args;
    const tells = store === "store" && !args.includes(ATTACK) || command === "leases";
    if (tells && args.length !== 3) expect(stdout + stderr).toContain("evil\\x1b[2J");
  },
);

test.each([[["holder", "store"]], [["history", "store"]], [["leases"]]])(
  "agent %p --json is the very value, and still text to a terminal",
  async (args) => {
    const { stdout } = await runClient(agent, [...args, "--json"]);
    expectVisible(stdout);
    expect(JSON.stringify(JSON.parse(stdout))).toContain(JSON.stringify(ATTACK).slice(1, -1));
  },
);

test("agent watch at a terminal shows it as text, in our colours", async () => {
  const env = { ZIT_AGENT_SOCKET: agent.socket };
  const screen = await onTerminal([AGENT, "watch"], [
    ["expect", "store .*other.* evil"],
    ["send", "\x03"],
  ], { env });
  expect(screen).toContain(`${SHOWN} ${visible(ADDRESS)}`);
  expectVisible(screen.split("^C")[0]!, { colours: true });
});

test("agent guard that waits at a terminal shows it as text", async () => {
  const env = { ZIT_AGENT_SOCKET: agent.socket, TERM: "dumb" };
  const command = [AGENT, "guard", "store", "--wait-lease", "--wait", "3s", "--", "true"];
  const screen = await onTerminal(command, [["expect", "waiting up to .*evil"]], { env });
  expectVisible(screen, { colours: true });
});

test("the log has it as text, in both formats", () => {
  const log = readFileSync(join(agent.dir, "log"), "utf8");
  expectVisible(log);
});

test("an agent's own words are shown as text, too", async () => {
  using dir = tempDir();
  const socket = join(dir.path, "s");
  const error = { code: -32003, message: ATTACK, data: { kind: "busy" } };
  const liar = createServer((connection) => {
    connection.on("data", (lines) => {
      for (const line of lines.toString().trim().split("\n")) {
        const { id } = JSON.parse(line);
        connection.write(`${JSON.stringify({ jsonrpc: "2.0", id, error })}\n`);
      }
    }).on("error", () => {});
  }).listen(socket);
  try {
    const env = { ZIT_AGENT_SOCKET: socket };
    for (const args of [["guard", "s", "--", "true"], ["leases"], ["watch"], ["--check"]]) {
      const { stdout, stderr } = await runClient(agent, args, { env });
      expectVisible(stdout + stderr);
      expect(stdout + stderr).toContain("evil\\x1b[2J");
    }
  } finally {
    liar.close();
  }
});

test("checkLine() is visible, also where it is served over HTTP", () => {
  const status = { healthy: false, checks: [{ name: "a", ok: false, message: ATTACK }] };
  const line = checkLine({ ...status, warnings: [] } as unknown as Parameters<typeof checkLine>[0]);
  expect(line).toContain("evil\\x1b[2J");
  expectVisible(line);
});
