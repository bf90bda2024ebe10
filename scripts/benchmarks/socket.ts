/**
 * What the socket protocol costs: round trips of an empty handler through our server, and through
 * server and client, against a bare `node:net` echo of the same numbers of bytes. All interleaved in
 * one run, so that the machine's moods meet them alike; then requests a second when pipelined.
 * @module
 */
import { connect as connectSocket, createServer } from "node:net";
import { type Connection, openConnection } from "../../src/client/mod.ts";
import { SocketServer } from "../../src/socket/server.ts";
import { print, quantile } from "./figures.ts";
import { openOptions, TemporaryDirectory } from "../../test/socket/support/server.ts";

const STORE = "0123456789abcdef0123456789abcdef01234567";
const PARAMS = { token: "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", store: STORE };
const RESULT = { store: STORE, epoch: 1234567890, revision: 1234567891, remaining_ms: 14_000.5 };
const REQUEST = line({ jsonrpc: "2.0", id: 1000, method: "verify", params: PARAMS });
const ANSWER = line({ jsonrpc: "2.0", id: 1000, result: RESULT });

const ROUNDS = 20_000;
const WARM_UP_ROUNDS = 2_000;
/** Requests that are under way at once when pipelined. */
const DEPTH = 500;
const BATCHES = 400;

function line(message: unknown): string {
  return `${JSON.stringify(message)}\n`;
}

/** The other process: our server beside the echo. */
async function serve(directory: string): Promise<void> {
  const server = new SocketServer(
    openOptions({ verify: (_params, _connection, reply) => reply.ok(RESULT) }),
  );
  await server.listen(`${directory}/agent.sock`);
  const answers = Buffer.from(ANSWER.repeat(DEPTH));
  const echo = createServer((socket) => {
    socket.on("data", (chunk: Buffer) => {
      let requests = 0;
      for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) requests++;
      socket.write(answers.subarray(0, requests * ANSWER.length));
    });
  });
  echo.listen(`${directory}/echo.sock`, () => console.log("ready"));
}

/** Sends `text`, resolves when `bytes` came back. */
type Exchange = (text: string, bytes: number) => Promise<void>;

function exchangeOver(path: string): Promise<Exchange> {
  const socket = connectSocket(path);
  let missing = 0;
  let done = () => {};
  socket.on("data", (chunk) => {
    missing -= chunk.length;
    if (missing === 0) done();
  });
  function exchange(text: string, bytes: number): Promise<void> {
    return new Promise((resolve) => {
      missing = bytes;
      done = resolve;
      socket.write(text);
    });
  }
  return new Promise((resolve) => socket.on("connect", () => resolve(exchange)));
}

async function roundTrips(kinds: Record<string, () => Promise<unknown>>, rounds: number) {
  const times = Object.keys(kinds).map(() => new Array<number>(rounds));
  for (let round = -WARM_UP_ROUNDS; round < rounds; round++) {
    let index = 0;
    for (const exchange of Object.values(kinds)) {
      const start = Bun.nanoseconds();
      await exchange();
      const took = Bun.nanoseconds() - start;
      if (round >= 0) times[index][round] = took / 1_000;
      index++;
    }
  }
  const [first, ...others] = Object.keys(kinds);
  const vs = quantile(times[0], 0.5);
  print({ name: `socket_${first}_p50`, value: vs, unit: "us" });
  others.forEach((name, i) =>
    print({ name: `socket_${name}_p50`, value: quantile(times[i + 1], 0.5), unit: "us", vs })
  );
}

async function requestsASecond(name: string, batch: () => Promise<unknown>): Promise<void> {
  await batch();
  const start = Bun.nanoseconds();
  for (let i = 0; i < BATCHES; i++) await batch();
  const value = (BATCHES * DEPTH) / ((Bun.nanoseconds() - start) / 1e9);
  print({ name, value, unit: "1/s" });
}

async function measure(agent: Connection, directory: string, rounds: number): Promise<void> {
  const echo = await exchangeOver(`${directory}/echo.sock`);
  const ours = await exchangeOver(`${directory}/agent.sock`);
  await roundTrips({
    echo: () => echo(REQUEST, ANSWER.length),
    server: () => ours(REQUEST, ANSWER.length),
    server_and_client: () => agent.call("verify", PARAMS),
  }, rounds);
  const batch = REQUEST.repeat(DEPTH);
  await requestsASecond("socket_server_pipelined", () => ours(batch, ANSWER.length * DEPTH));
  await requestsASecond(
    "socket_client_pipelined",
    () => Promise.all(Array.from({ length: DEPTH }, () => agent.call("verify", PARAMS))),
  );
}

/** The socket library alone, without an agent behind it. */
export async function socket(): Promise<void> {
  using directory = new TemporaryDirectory();
  const child = Bun.spawn({
    cmd: [process.execPath, import.meta.path, "serve", directory.path],
    stdout: "pipe",
    stderr: "inherit",
  });
  await child.stdout.getReader().read();
  const agent = await openConnection({ socket: `${directory.path}/agent.sock` });
  try {
    await measure(agent, directory.path, ROUNDS);
  } finally {
    child.kill();
  }
}

if (import.meta.main) await serve(process.argv[3]);
