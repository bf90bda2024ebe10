/**
 * A TCP proxy that delays, or holds, what passes through it: the kernel here has no netem.
 *
 * `bun proxy.ts LISTEN=TARGET…`, each `HOST:PORT`; port 0 is any. Prints the ports it listens on as a
 * JSON array, and obeys lines of standard input, each an {@linkcode Order}.
 * @module
 */
import { connect, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";

/** What may be told to the proxy. What is not told stays. */
export interface Order {
  /** Delays each direction by so much. */
  readonly delayMs?: number;
  /** Delays only what comes from, or goes to, clients with these addresses; null for all. */
  readonly only?: readonly string[] | null;
  /** Stops forwarding to and from these targets, closing nothing, as a cable that was pulled. */
  readonly hold?: readonly number[];
}

let delayMs = 0;
let only: readonly string[] | null = null;
let held = new Set<number>();
const released: (() => void)[] = [];

/** One connection: its target's number, and who made it. */
interface Route {
  readonly target: number;
  readonly client: string;
}

/** Forwards one direction, in order. */
function pipe(from: Socket, to: Socket, { target, client }: Route): void {
  let lastDueMs = 0;
  let queue = Promise.resolve();
  from.on("data", (chunk) => {
    const ownDelayMs = only === null || only.includes(client) ? delayMs : 0;
    // In order even when the delay has just become shorter.
    lastDueMs = Math.max(lastDueMs, performance.now() + ownDelayMs);
    const dueMs = lastDueMs;
    queue = queue.then(async () => {
      const restMs = dueMs - performance.now();
      if (restMs > 0) await Bun.sleep(restMs);
      while (held.has(target)) await new Promise<void>((resolve) => released.push(resolve));
      to.write(chunk);
    });
  });
  from.on("close", () => queue.then(() => to.end()));
  from.on("error", () => to.destroy());
}

function split(address: string): { host: string; port: number } {
  const [host, port] = address.split(":");
  return { host, port: Number(port) };
}

async function listen(target: number, [own, other]: string[]): Promise<number> {
  const server = createServer((client) => {
    const upstream = connect({ ...split(other), noDelay: true });
    client.setNoDelay(true);
    const route = { target, client: client.remoteAddress ?? "" };
    pipe(client, upstream, route);
    pipe(upstream, client, route);
  });
  await new Promise<void>((resolve) => server.listen(split(own), resolve));
  return (server.address() as { port: number }).port;
}

if (import.meta.main) {
  const ports = await Promise.all(
    process.argv.slice(2).map((pair, index) => listen(index, pair.split("="))),
  );
  console.log(JSON.stringify(ports));
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line) as Order;
    if (order.delayMs !== undefined) delayMs = order.delayMs;
    if (order.only !== undefined) only = order.only;
    if (order.hold !== undefined) held = new Set(order.hold);
    for (const go of released.splice(0)) go();
  }
  process.exit(0);
}
