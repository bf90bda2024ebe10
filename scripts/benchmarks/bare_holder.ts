/**
 * Holds stores with nothing around it: the same writes as an agent's, by the same client library,
 * with no lease logic, no deadlines, no socket. What an agent cannot beat.
 *
 *   bun bare_holder.ts URL STORES HOLD_SECONDS RENEW_SECONDS
 *
 * Prints a line when all are held, and one after holding; each a JSON object.
 * @module
 */
import { connect, createInbox, type Msg } from "@nats-io/transport-node";

/** The same as an agent's window; see src/agent/window.ts. */
const WINDOW = 2_048;

const [url, stores, holdSeconds, renewSeconds] = process.argv.slice(2);
const size = Number(stores);
const nc = await connect({ servers: url });
const inbox = createInbox() + ".";
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const node = encoder.encode("bench");
const revisions = new Float64Array(size);
const dueMs = new Float64Array(size);
const pending = new Map<number, (seq: number) => void>();
let lastId = 0;

nc.subscribe(inbox + "*", {
  callback: (error, message: Msg) => {
    if (error !== null) throw error;
    const id = Number(message.subject.slice(inbox.length));
    const { seq, error: refused } = JSON.parse(decoder.decode(message.data));
    if (refused !== undefined) throw new Error(JSON.stringify(refused));
    const done = pending.get(id)!;
    pending.delete(id);
    done(seq);
  },
});

function put(subject: string, data: Uint8Array, expect: number, done: (seq: number) => void): void {
  const id = ++lastId;
  pending.set(id, done);
  const headers = encoder.encode(
    `NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: ${expect}\r\nZit-Incarnation: ${INCARNATION}\r\n\r\n`,
  );
  const encoded = { encode: () => headers } as unknown as NonNullable<
    Parameters<typeof nc.publish>[2]
  >["headers"];
  nc.publish(subject, data, { reply: inbox + id, headers: encoded });
}

const INCARNATION = "0123456789abcdef0123456789abcdef";

function acquire(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let next = 0;
  let recorded = 0;
  const fill = () => {
    while (next < size && pending.size < WINDOW) begin(next++);
  };
  const begin = (i: number) =>
    put(`$KV.leases.s${i}`, node, 0, (seq) => {
      revisions[i] = seq;
      dueMs[i] = performance.now() + Number(renewSeconds) * 1_000 * (0.95 + 0.1 * Math.random());
      const record = JSON.stringify({
        node: "bench",
        incarnation: INCARNATION,
        address: null,
        epoch: seq,
        acquired_at: new Date().toISOString(),
      });
      put(`$KV.leases-tenures.s${i}`, encoder.encode(record), 0, () => {
        if (++recorded === size) resolve();
        fill();
      });
    });
  fill();
  return promise;
}

/** Renews each store once every so often, in the order of acquisition; answers are only noted. */
async function hold(untilMs: number): Promise<number> {
  const everyMs = Number(renewSeconds) * 1_000;
  let renewals = 0;
  let next = 0;
  const firstMs = performance.now();
  while (performance.now() < untilMs) {
    const dueNow = Math.floor(((performance.now() - firstMs) / everyMs) * size);
    for (; next < dueNow && pending.size < WINDOW; next++) {
      const i = next % size;
      put(`$KV.leases.s${i}`, node, revisions[i], (seq) => {
        revisions[i] = seq;
        renewals++;
      });
    }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  return renewals;
}

const start = performance.now();
await acquire();
console.log(JSON.stringify({ acquired: (performance.now() - start) / 1_000 }));
const renewals = await hold(performance.now() + Number(holdSeconds) * 1_000);
console.log(JSON.stringify({ renewals }));
await nc.close();
process.exit(0);
