import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { openConnection } from "../../src/client/mod.ts";
import { hostileLine, randomFrom } from "./support/hostile.ts";
import { RawClient, spawnProgram, TemporaryDirectory } from "./support/server.ts";

/** ZIT_FUZZ_SEED replays a run; ZIT_FUZZ_LINES makes it longer. */
const SEED = Number(process.env.ZIT_FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31));
const LINES = Number(process.env.ZIT_FUZZ_LINES ?? 60_000);
const LINES_A_CLIENT = 60;
const CLIENTS_AT_ONCE = 20;

/** What the server may grow to: 20 clients with an unfinished line of 1 MiB, and a lazy collector. */
const MAX_RSS_BYTES = 400 * 1_048_576;

function rssBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)![1]) * 1_024;
}

/** Sends `bytes` in pieces cut anywhere, as a slow or clever client does. */
async function sendInPieces(client: RawClient, bytes: Buffer, random: () => number): Promise<void> {
  let start = 0;
  while (start < bytes.length) {
    const size = random() < 0.3 ? 1 + Math.floor(random() * 20) : Math.floor(random() * 200_000);
    client.send(bytes.subarray(start, start + size));
    start += size;
    if (random() < 0.1) await new Promise(setImmediate);
  }
}

/** Reads until the answer to `sentinel`; every line on the way must be a message of the protocol. */
async function expectAnswers(client: RawClient, sentinel: string): Promise<void> {
  while (true) {
    const message = await client.message();
    expect(message.jsonrpc).toBe("2.0");
    expect(Object.keys(message)).toContain("id");
    expect("result" in message).not.toBe("error" in message);
    if (message.id === sentinel) return;
  }
}

/** One hostile client's life. */
async function attack(path: string, seed: number): Promise<void> {
  const random = randomFrom(seed);
  using client = await RawClient.connect(path);
  const lines = Array.from({ length: LINES_A_CLIENT }, () => hostileLine(random));
  const bytes = Buffer.concat(lines.flatMap((line) => [line, Buffer.from("\n")]));
  const manner = random();
  if (manner < 0.1) client.socket.pause();
  const sent = manner < 0.2 ? bytes.subarray(0, Math.floor(random() * bytes.length)) : bytes;
  await sendInPieces(client, sent, random);
  if (manner < 0.2) return;
  const sentinel = `sentinel-${seed}`;
  client.request(sentinel, "held", { store: "held" });
  await expectAnswers(client, sentinel);
}

test(`SocketServer lives when clients are hostile (ZIT_FUZZ_SEED=${SEED})`, async () => {
  using directory = new TemporaryDirectory();
  const path = join(directory.path, "agent.sock");
  const child = spawnProgram("serve.ts", path);
  await child.stdout.getReader().read();
  await using agent = await openConnection({ socket: path });

  let attacking = true;
  let answered = 0;
  async function behaveWell(): Promise<void> {
    while (attacking) {
      expect(await agent.call("held", { store: "held" })).toEqual({ held: true });
      expect(await agent.call("held", { store: "other" })).toEqual({ held: false });
      answered += 2;
    }
  }
  const wellBehaved = behaveWell();

  let next = 0;
  let mostBytes = 0;
  async function attackOn(): Promise<void> {
    while (next * LINES_A_CLIENT < LINES) {
      await attack(path, SEED + next++);
      mostBytes = Math.max(mostBytes, rssBytes(child.pid));
    }
  }
  try {
    await Promise.all(Array.from({ length: CLIENTS_AT_ONCE }, attackOn));
  } finally {
    attacking = false;
  }
  await wellBehaved;

  expect(next * LINES_A_CLIENT).toBeGreaterThanOrEqual(LINES);
  expect(answered).toBeGreaterThan(CLIENTS_AT_ONCE);
  expect(mostBytes).toBeLessThan(MAX_RSS_BYTES);
  await agent.close();
  child.stdin.end();
  expect(await child.exited).toBe(0);
  expect(await new Response(child.stderr).text()).toBe("");
}, 120_000);
