/**
 * What an operator does to the records, well-meaning or not; and the follower that notes tenures.
 * @module
 */
import { jetstream, type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import type { HistoryFile } from "./history.ts";
import { OPERATOR } from "./servers.ts";

const STREAM = "KV_leases";
const TENURES = "KV_leases-tenures";

/** How long an operator waits for an answer before they give up. */
const PATIENCE_MS = 3_000;

/** A connection with all permissions. What fails, fails: the cluster may be down. */
export class ChaosOperator {
  readonly #nc: NatsConnection;
  readonly #jsm: JetStreamManager;
  readonly #history: HistoryFile;
  #seen = 0;
  #following = true;
  readonly #follower: Promise<void>;

  static async connect(urls: readonly string[], history: HistoryFile): Promise<ChaosOperator> {
    const nc = await connect({
      servers: [...urls],
      ...OPERATOR,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 300,
      ignoreAuthErrorAbort: true,
      pingInterval: 1_000,
      maxPingOut: 2,
    });
    const jsm = await jetstreamManager(nc, { checkAPI: false, timeout: PATIENCE_MS });
    return new ChaosOperator(nc, jsm, history);
  }

  private constructor(nc: NatsConnection, jsm: JetStreamManager, history: HistoryFile) {
    this.#nc = nc;
    this.#jsm = jsm;
    this.#history = history;
    this.#follower = this.#follow();
  }

  /** Deletes a store's entry, whoever holds it. */
  async deleteEntry(store: string): Promise<void> {
    const { headers } = await import("@nats-io/transport-node");
    const deletion = headers();
    deletion.set("KV-Operation", "DEL");
    await this.#nc.request(`$KV.leases.${store}`, new Uint8Array(0), {
      timeout: PATIENCE_MS,
      headers: deletion,
    });
  }

  /** Writes a node's name over a store's entry, without headers, whoever holds it. */
  async overwriteEntry(store: string, node: string): Promise<void> {
    await this.#nc.request(`$KV.leases.${store}`, node, { timeout: PATIENCE_MS });
  }

  /** Deletes the bucket of leases; the tenures stay. */
  async deleteBucket(): Promise<void> {
    await this.#jsm.streams.delete(STREAM);
  }

  /** Deletes the bucket and makes it again as it was, but above every revision it ever gave. */
  async recreateBucket(): Promise<void> {
    const { config, state } = await this.#jsm.streams.info(STREAM);
    await this.#jsm.streams.delete(STREAM);
    await this.#jsm.streams.add({ ...config, first_seq: state.last_seq + 1_000 });
  }

  /** Has the stream's leader step down, as before maintenance. */
  async moveLeader(): Promise<void> {
    await this.#nc.request(`$JS.API.STREAM.LEADER.STEPDOWN.${STREAM}`, "", {
      timeout: PATIENCE_MS,
    });
  }

  /** Resolves when every tenure record is noted, or after a while. */
  async catchUp(): Promise<void> {
    const { state } = await this.#jsm.streams.info(TENURES);
    const end = performance.now() + 10_000;
    while (this.#seen < state.last_seq && performance.now() < end) await Bun.sleep(50);
  }

  async close(): Promise<void> {
    this.#following = false;
    await this.#nc.close();
    await this.#follower;
  }

  /** Notes every tenure record, in order, across outages. */
  async #follow(): Promise<void> {
    const js = jetstream(this.#nc);
    while (this.#following) {
      try {
        const consumer = await js.consumers.get(TENURES, { opt_start_seq: this.#seen + 1 });
        const messages = await consumer.consume();
        for await (const message of messages) {
          this.#seen = message.seq;
          const record = message.json<{ node: string; epoch: number; released_at?: string }>();
          this.#history.note({
            kind: "tenure",
            store: message.subject.slice("$KV.leases-tenures.".length),
            node: record.node,
            epoch: record.epoch,
            closed: record.released_at !== undefined,
          });
        }
      } catch {
        // No bucket yet, no leader now, or the end.
      }
      await Bun.sleep(200);
    }
  }
}
