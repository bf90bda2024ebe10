/**
 * The older program as a writer of a run: it holds a store for a while, appends to its log while it
 * believes in its hold, lets it go, and wants another. No lock files, no verify: it knows neither.
 *
 * `bun older.ts OPTIONS`, a JSON object. Ends when its standard input does.
 * @module
 */
import { connect } from "@nats-io/transport-node";
import { closeSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { OlderProgram } from "../support/older_program.ts";
import { Random } from "../support/random.ts";
import { HistoryFile } from "./history.ts";
import { WRITE_MARGIN_MS } from "./client_section.ts";

/** What it is told. */
export interface OlderOptions {
  readonly node: string;
  readonly urls: readonly string[];
  readonly password: string;
  readonly ttlMs: number;
  readonly stores: readonly string[];
  /** Directory of the stores' logs, shared by all nodes. */
  readonly logs: string;
  readonly histories: string;
  readonly seed: number;
  readonly generation: number;
}

/** How long it wants a store before it gives up, … */
const WANT_MS = 20_000;
/** …and how long it keeps it, and is content without: the agents have the rest of the time. */
const KEEP_MS = [1_000, 5_000] as const;
const PAUSE_MS = [3_000, 10_000] as const;
/** The agents hear of each release, and are quick: it has to be quicker to be granted now and then. */
const TRY_MS = 20;
/** Between two writes. */
const WRITE_PAUSE_MS = 100;

const options = JSON.parse(process.argv[2]) as OlderOptions;
const { node, ttlMs, logs, histories, generation } = options;
const history = new HistoryFile(join(histories, `older-${node}-${generation}.jsonl`));
const random = new Random(options.seed + generation * 7_919);
let stopping = false;
process.stdin.on("end", () => (stopping = true));
process.stdin.resume();

/** Its turns at one store. */
class StoreWriter {
  readonly #store: string;
  readonly #random: Random;
  /** The grant that is noted for the present hold, if one is. */
  #id: string | null = null;
  #count = 0;

  constructor(store: string, random: Random) {
    this.#store = store;
    this.#random = random;
  }

  async run(program: OlderProgram): Promise<void> {
    while (!stopping) {
      await this.#turn(program);
      const untilMs = bootTimeMs() + this.#random.between(...PAUSE_MS);
      while (!stopping && bootTimeMs() < untilMs) await Bun.sleep(50);
    }
  }

  /** The hold is over, as far as it is one. */
  over(kind: "release" | "lost", why = ""): void {
    const id = this.#id;
    if (id === null) return;
    history.note(kind === "lost" ? { kind, id, why } : { kind, id });
    this.#id = null;
  }

  /** Holds the store for a while, if it can be had. */
  async #turn(program: OlderProgram): Promise<void> {
    program.want(this.#store);
    const wantedMs = bootTimeMs();
    while (program.holdOf(this.#store) === null) {
      if (stopping || bootTimeMs() > wantedMs + WANT_MS) return await this.#letGo(program);
      await Bun.sleep(20);
    }
    const untilMs = bootTimeMs() + this.#random.between(...KEEP_MS);
    const id = this.#id = `${node}/${generation}.${this.#store}#${++this.#count}`;
    let granted = false;
    for (let seq = 1; !stopping && bootTimeMs() < untilMs;) {
      const hold = program.holdOf(this.#store);
      if (hold === null || (granted && this.#id === null)) break;
      const { epoch, deadlineMs } = hold;
      if (granted) history.note({ kind: "extended", id, by: "renewed", deadlineMs });
      else history.note({ kind: "grant", id, node, store: this.#store, epoch, deadlineMs });
      granted = true;
      if (this.#write(id, { epoch, seq, deadlineMs })) seq++;
      await Bun.sleep(WRITE_PAUSE_MS);
    }
    await this.#letGo(program);
  }

  /** Appends one line; false when the deadline is too near. */
  #write(
    id: string,
    { epoch, seq, deadlineMs }: { epoch: number; seq: number; deadlineMs: number },
  ): boolean {
    const fd = openSync(join(logs, this.#store), "a");
    try {
      const t = bootTimeMs();
      if (t > deadlineMs - WRITE_MARGIN_MS) return false;
      writeSync(fd, JSON.stringify({ t, id, node, epoch, seq }) + "\n");
    } finally {
      closeSync(fd);
    }
    history.note({ kind: "wrote", id, seq });
    return true;
  }

  async #letGo(program: OlderProgram): Promise<void> {
    this.over("release");
    const store = this.#store;
    const hold = program.holdOf(store);
    if (hold !== null) {
      history.note({ kind: "tenure", store, node, epoch: hold.epoch, closed: true });
    }
    // Without an answer the entry ages out.
    await program.release(store).catch(() => {});
  }
}

async function open(writers: ReadonlyMap<string, StoreWriter>): Promise<OlderProgram> {
  const nc = await connect({
    servers: [...options.urls],
    user: node,
    pass: options.password,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 300,
    ignoreAuthErrorAbort: true,
    waitOnFirstConnect: true,
    pingInterval: 2_000,
  });
  while (true) {
    try {
      return await OlderProgram.open(nc, { node, ttlMs, tryMs: TRY_MS, bucket: "leases" }, {
        // It leaves no tenure record: what the agents' records say of them, it says of itself.
        acquired: (store, { epoch }) =>
          history.note({ kind: "tenure", store, node, epoch, closed: false }),
        // Somebody may be told that it holds the store, though it does not know.
        unknown: (store) => history.note({ kind: "tenure", store, node, epoch: 0, closed: false }),
        lost: (store) => writers.get(store)!.over("lost", "entry"),
      });
    } catch {
      await Bun.sleep(WRITE_PAUSE_MS);
    }
  }
}

const writers = new Map(
  options.stores.map((store) => [store, new StoreWriter(store, random.fork())]),
);
const program = await open(writers);
void program.run();
await Promise.all([...writers.values()].map((writer) => writer.run(program)));
process.exit(0);
