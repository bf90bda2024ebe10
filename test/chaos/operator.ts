/**
 * What an operator does to the records, well-meaning or not; and the follower that notes tenures.
 * @module
 */
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import type { HistoryFile } from "./history.ts";
import { OPERATOR } from "./servers.ts";

const STREAM = "KV_leases";
const TENURES = "KV_leases-tenures";
const SUBJECTS = "$KV.leases-tenures.";

/** How often to look for a new tenure record. */
const FOLLOW_MS = 100;

/** How long an operator waits for an answer before they give up. */
const PATIENCE_MS = 3_000;
/** And how long their follower does, which asks again: what it notes late cannot be judged. */
const FOLLOWER_PATIENCE_MS = 1_000;

/** A connection with all permissions. What fails, fails: the cluster may be down. */
export class ChaosOperator {
  readonly #nc: NatsConnection;
  readonly #jsm: JetStreamManager;
  readonly #follows: JetStreamManager;
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
    const follows = await jetstreamManager(nc, { checkAPI: false, timeout: FOLLOWER_PATIENCE_MS });
    return new ChaosOperator(nc, { jsm, follows }, history);
  }

  private constructor(
    nc: NatsConnection,
    { jsm, follows }: { readonly jsm: JetStreamManager; readonly follows: JetStreamManager },
    history: HistoryFile,
  ) {
    this.#nc = nc;
    this.#jsm = jsm;
    this.#follows = follows;
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

  /**
   * Notes every tenure record, in order. Asked for one by one: a consumer may hang after an election,
   * and what is overwritten meanwhile would be missed.
   */
  async #follow(): Promise<void> {
    while (this.#following) {
      try {
        const message = await this.#follows.streams.getMessage(TENURES, {
          seq: this.#seen + 1,
          next_by_subj: `${SUBJECTS}>`,
        } as { seq: number }); // The library's types know only half of the request.
        if (message !== null) {
          this.#note(message);
          continue;
        }
      } catch {
        // No bucket yet, no leader now, or the end.
      }
      await Bun.sleep(FOLLOW_MS);
    }
  }

  #note({ seq, subject, data }: { seq: number; subject: string; data: Uint8Array }): void {
    this.#seen = seq;
    const record = JSON.parse(new TextDecoder().decode(data)) as {
      node: string;
      epoch: number;
      released_at?: string;
    };
    this.#history.note({
      kind: "tenure",
      store: subject.slice(SUBJECTS.length),
      node: record.node,
      epoch: record.epoch,
      closed: record.released_at !== undefined,
    });
  }
}
