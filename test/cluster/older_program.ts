/**
 * An older program that shares the fleet: it does what the layout of the records says and nothing
 * else. `Create` to acquire, `Update` with the revision every third of the TTL, `Get` to see who
 * holds; no headers, no tenure records. Having found somebody else's entry, it waits a TTL before it
 * writes.
 *
 * `bun older_program.ts URL NODE TTL_MS`; tells of each store that it is asked for by a line `want
 * STORE` in a line of its own: `acquired`, `granted`, `lost`, `foreign NODE`; `release STORE` deletes
 * its entry.
 * @module
 */
import { jetstream } from "@nats-io/jetstream";
import { type KV, Kvm } from "@nats-io/kv";
import { connect } from "@nats-io/transport-node";
import { createInterface } from "node:readline";

/** How often it tries to create an entry that is not its own. */
const TRY_MS = 100;

interface Hold {
  revision: number;
  renewedMs: number;
  /** Writes are allowed from then on. */
  fromMs: number;
  granted: boolean;
}

class OlderProgram {
  readonly #kv: KV;
  readonly #node: string;
  readonly #ttlMs: number;
  readonly #holds = new Map<string, Hold>();
  readonly #seenForeign = new Map<string, string>();
  readonly #wanted = new Set<string>();

  constructor(kv: KV, node: string, ttlMs: number) {
    this.#kv = kv;
    this.#node = node;
    this.#ttlMs = ttlMs;
  }

  want(store: string): void {
    this.#wanted.add(store);
  }

  async release(store: string): Promise<void> {
    const hold = this.#holds.get(store);
    this.#wanted.delete(store);
    this.#holds.delete(store);
    if (hold !== undefined) await this.#kv.delete(store, { previousSeq: hold.revision });
    console.log(`released ${store}`);
  }

  async run(): Promise<never> {
    while (true) {
      for (const store of this.#wanted) {
        const hold = this.#holds.get(store);
        if (hold === undefined) await this.#acquire(store);
        else await this.#keep(store, hold);
      }
      await Bun.sleep(TRY_MS);
    }
  }

  async #acquire(store: string): Promise<void> {
    const sentMs = performance.now();
    let revision: number;
    try {
      revision = await this.#kv.create(store, this.#node);
    } catch {
      await this.#look(store);
      return;
    }
    const graceMs = this.#seenForeign.delete(store) ? this.#ttlMs : 0;
    this.#holds.set(store, {
      revision,
      renewedMs: sentMs,
      fromMs: performance.now() + graceMs,
      granted: false,
    });
    console.log(`acquired ${store} ${revision}`);
  }

  async #look(store: string): Promise<void> {
    const entry = await this.#kv.get(store).catch(() => null);
    const holder = entry?.operation === "PUT" ? entry.string() : null;
    if (holder === null || this.#seenForeign.get(store) === holder) return;
    this.#seenForeign.set(store, holder);
    console.log(`foreign ${store} ${holder}`);
  }

  async #keep(store: string, hold: Hold): Promise<void> {
    const nowMs = performance.now();
    if (!hold.granted && nowMs >= hold.fromMs) {
      hold.granted = true;
      console.log(`granted ${store}`);
    }
    if (nowMs < hold.renewedMs + this.#ttlMs / 3) return;
    try {
      hold.revision = await this.#kv.update(store, this.#node, hold.revision);
      hold.renewedMs = nowMs;
    } catch {
      this.#holds.delete(store);
      console.log(`lost ${store}`);
    }
  }
}

if (import.meta.main) {
  const [url, node, ttlMs, bucket] = process.argv.slice(2);
  const nc = await connect({ servers: url });
  const kv = await new Kvm(jetstream(nc)).open(bucket, { bindOnly: true });
  const program = new OlderProgram(kv, node, Number(ttlMs));
  createInterface({ input: process.stdin }).on("line", (line) => {
    const [verb, store] = line.split(" ");
    if (verb === "want") program.want(store);
    else void program.release(store);
  });
  console.log("ready");
  await program.run();
}
