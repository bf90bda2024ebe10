/**
 * What `held` costs through the socket, beside an echo of the same bytes on the same library.
 * @module
 */
import { createConnection } from "node:net";
import { RealAgent } from "../../test/support/real_agent.ts";
import { print, printPair, timeUs } from "./figures.ts";

const WARM_UP = 2_000;
const ROUNDS = 10_000;
const BATCH = 10_000;
const BATCHES = 30;

const ECHO = `
import { createServer } from "node:net";
createServer((socket) => socket.on("data", (data) => socket.write(data)))
  .listen(process.argv.at(-1), () => console.log("ready"));
`;

/**
 * Puts a process on a core, with all of its threads. Where the scheduler happens to put it decides
 * whether waking it crosses cores, which takes twice as long: more than what is to be compared.
 */
function pin(pid: number, core: number): void {
  const { success } = Bun.spawnSync(["taskset", "-a", "-c", "-p", String(core), String(pid)]);
  if (!success) throw new Error("Cannot pin a process to a core: is taskset (util-linux) there?");
}

/** `held`: one at a time, and in batches; the agent and what it is compared to on the same core. */
export async function held(): Promise<void> {
  await using agent = await RealAgent.start({ node: "bench", flags: ["--log-level", "info"] });
  const client = await agent.client();
  const path = `${agent.dir}/echo.sock`;
  const child = Bun.spawn({
    cmd: [process.execPath, "-e", ECHO, path],
    stdout: "pipe",
    stderr: "inherit",
  });
  await child.stdout.getReader().read();
  const echo = createConnection(path);
  await new Promise((resolve) => echo.once("connect", resolve));
  const line = `{"jsonrpc":"2.0","id":1,"method":"held","params":{"store":"store"}}\n`;
  pin(process.pid, 0);
  for (const { pid } of [agent, child]) pin(pid, navigator.hardwareConcurrency - 1);
  const ours: number[] = [];
  const theirs: number[] = [];
  for (let i = 0; i < WARM_UP + ROUNDS; i++) {
    const oursUs = await timeUs(() => client.call("held", { store: "store" }));
    const theirsUs = await timeUs(() =>
      new Promise((resolve) => {
        echo.once("data", resolve);
        echo.write(line);
      })
    );
    if (i < WARM_UP) continue;
    ours.push(oursUs);
    theirs.push(theirsUs);
  }
  printPair("held", ours, theirs);
  echo.destroy();
  child.kill();
  const stores = Array.from({ length: BATCH }, (_, i) => `s${i % 1_000}`);
  await client.call("held", { stores });
  const start = performance.now();
  for (let i = 0; i < BATCHES; i++) await client.call("held", { stores });
  const seconds = (performance.now() - start) / 1_000;
  print({ name: "held_batched", value: BATCH * BATCHES / seconds, unit: "1/s" });
}
