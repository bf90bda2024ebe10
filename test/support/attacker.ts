/**
 * A process that sends an agent hostile messages: `attacker.ts SOCKET SEED LINES`. Prints how many
 * lines it sent and how many were answered.
 * @module
 */
import { connect } from "node:net";
import { hostileLine } from "../socket/support/hostile.ts";
import { Random } from "./random.ts";

const LINES_A_CLIENT = 100;
const CLIENTS_AT_ONCE = 16;

const [socket, seed, lines] = process.argv.slice(2) as [string, string, string];
let left = Number(lines);
let sent = 0;
let answered = 0;

/** Well-formed requests with an ill will: all that the methods allow, at odds with each other. */
function scheming(random: Random): string {
  const store = random.pick(["one", "two", "none", "a/b", "a.b"]);
  const id = random.between(1, 5);
  const params = random.pick<[string, object]>([
    ["guard", { store, wait_ms: random.between(0, 50), pass_lock: random.next() < 0.5 }],
    ["guard", { store, shared: true, follow: true, wait_lease: true, wait_ms: 20 }],
    ["guard", { store, wait_ms: 2 ** 31 }],
    ["verify", { store, token: "x".repeat(random.between(0, 3_000)) }],
    ["release", { token: "" }],
    ["watch", random.next() < 0.5 ? {} : { stores: [store] }],
    ["unwatch", { subscription: `w${random.between(0, 9)}` }],
    ["held", { stores: Array.from({ length: random.between(0, 200) }, () => store) }],
    ["leases", { limit: random.between(-1, 10), after: "one" }],
    ["history", { store }],
    ["holder", { store }],
    ["status", {}],
  ]);
  return JSON.stringify({ jsonrpc: "2.0", id, method: params[0], params: params[1] });
}

function attack(random: Random): Promise<void> {
  return new Promise((resolve) => {
    const client = connect({ path: socket, allowHalfOpen: random.next() < 0.5 });
    const manner = random.next();
    client.on("data", (bytes) => answered += bytes.toString("latin1").split("\n").length - 1);
    client.on("error", () => {});
    client.on("close", () => resolve());
    if (manner < 0.1) client.pause();
    const count = Math.min(LINES_A_CLIENT, left);
    left -= count;
    sent += count;
    const all = Buffer.concat(
      Array.from(
        { length: count },
        () =>
          random.next() < 0.5
            ? Buffer.from(scheming(random) + "\n")
            : Buffer.concat([hostileLine(() => random.next()), Buffer.from("\n")]),
      ),
    );
    const bytes = manner < 0.2 ? all.subarray(0, random.between(0, all.length)) : all;
    client.write(bytes, () => {
      // Some go at once, some half, some stay a moment to hear what comes.
      if (manner < 0.3) client.destroy();
      else if (manner < 0.6) client.end();
      setTimeout(() => client.destroy(), random.between(5, 60));
    });
  });
}

const root = new Random(Number(seed));
await Promise.all(Array.from({ length: CLIENTS_AT_ONCE }, async () => {
  const random = new Random(root.between(0, 2 ** 31));
  while (left > 0) await attack(random);
}));
console.log(JSON.stringify({ sent, answered }));
process.exit(0);
