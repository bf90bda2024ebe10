/**
 * A TCP proxy that delays, or holds, what passes through it: the kernel here has no netem.
 *
 * `bun proxy.ts HOST:PORT…` listens on 127.0.0.1 once for each target, prints the ports as a JSON
 * array, and obeys lines of standard input: `{"delayMs": 50}` delays each direction, `{"hold": [0]}`
 * stops forwarding to and from those targets without closing anything, as a cable that was pulled.
 * @module
 */
import { connect, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";

/** What may be told to the proxy. */
export interface Order {
  readonly delayMs?: number;
  readonly hold?: readonly number[];
}

let delayMs = 0;
let held = new Set<number>();
const released: (() => void)[] = [];

/** Forwards one direction, in order. */
function pipe(from: Socket, to: Socket, target: number): void {
  let lastDueMs = 0;
  let queue = Promise.resolve();
  from.on("data", (chunk) => {
    // In order even when the delay has just become shorter.
    lastDueMs = Math.max(lastDueMs, performance.now() + delayMs);
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

async function listen(target: number, host: string, port: number): Promise<number> {
  const server = createServer((client) => {
    const upstream = connect({ host, port, noDelay: true });
    client.setNoDelay(true);
    pipe(client, upstream, target);
    pipe(upstream, client, target);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as { port: number }).port;
}

if (import.meta.main) {
  const targets = process.argv.slice(2).map((text) => text.split(":"));
  const ports = await Promise.all(
    targets.map(([host, port], index) => listen(index, host, Number(port))),
  );
  console.log(JSON.stringify(ports));
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line) as Order;
    if (order.delayMs !== undefined) delayMs = order.delayMs;
    if (order.hold !== undefined) held = new Set(order.hold);
    for (const go of released.splice(0)) go();
  }
  process.exit(0);
}
