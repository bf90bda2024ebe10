/**
 * Measures the coordinator adapter against the client library's own KV: one write after the other
 * (interleaved, so that both see the same machine), and many in flight.
 * @module
 */
import { jetstream } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { connect } from "@nats-io/transport-node";
import type { Outcome } from "../../src/ports/coordinator.ts";
import { print, printPair, quantile } from "./figures.ts";
import { NatsServer } from "../../test/support/nats.ts";
import { Subject } from "../../test/support/recorder.ts";

const WARM_UP = 2_000;
const ROUNDS = 10_000;
const KEYS = 10_000;
const SWEEPS = 10;

function revision(outcome: Outcome<number>): number {
  if (outcome.kind !== "ok") throw new Error(JSON.stringify(outcome));
  return outcome.value;
}

async function sequential(subject: Subject, url: string): Promise<void> {
  const nc = await connect({ servers: url });
  const kv = await new Kvm(jetstream(nc)).open("leases");
  let ours = revision(await subject.put("ours", 0));
  let theirs = await kv.create("theirs", "alpha");
  const ourUs: number[] = [];
  const theirUs: number[] = [];
  for (let i = 0; i < WARM_UP + ROUNDS; i++) {
    const start = performance.now();
    ours = revision(await subject.put("ours", ours));
    const middle = performance.now();
    theirs = await kv.update("theirs", "alpha", theirs);
    const end = performance.now();
    if (i < WARM_UP) continue;
    ourUs.push((middle - start) * 1_000);
    theirUs.push((end - middle) * 1_000);
  }
  await nc.close();
  printPair("put_sequential", ourUs, theirUs);
}

async function pipelined(subject: Subject): Promise<void> {
  const stores = Array.from({ length: KEYS }, (_, i) => `store-${i}`);
  const put = (expected: number[]) =>
    Promise.all(stores.map((store, i) => subject.put(store, expected[i])));
  let revisions = (await put(stores.map(() => 0))).map(revision);
  const rates: number[] = [];
  const cpuUs: number[] = [];
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const cpu = process.cpuUsage();
    const start = performance.now();
    revisions = (await put(revisions)).map(revision);
    rates.push(KEYS / ((performance.now() - start) / 1_000));
    const { user, system } = process.cpuUsage(cpu);
    cpuUs.push((user + system) / KEYS);
  }
  print({ name: "put_pipelined_p50", value: quantile(rates, 0.5), unit: "1/s" });
  print({ name: "put_pipelined_cpu_p50", value: quantile(cpuUs, 0.5), unit: "us" });
}

/** Writes through the adapter, without an agent around it. */
export async function coordinator(): Promise<void> {
  await using server = await NatsServer.start();
  await using subject = await Subject.connect({ urls: [server.url] });
  await sequential(subject, server.url);
  await pipelined(subject);
}
