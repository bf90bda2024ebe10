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
import { WRITE_MARGIN_MS } from "./writer.ts";

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
const WANT_MS = 8_000;
/** …and how long it keeps it, and is content with none: the agents have the rest of the time. */
const KEEP_MS = [1_000, 6_000] as const;
const PAUSE_MS = [2_000, 8_000] as const;
/** Between two writes. */
const WRITE_PAUSE_MS = 100;

const options = JSON.parse(process.argv[2]) as OlderOptions;
const { node, ttlMs, logs, histories, generation } = options;
const history = new HistoryFile(join(histories, `older-${node}-${generation}.jsonl`));
const random = new Random(options.seed + generation * 7_919);
let stopping = false;
process.stdin.on("end", () => (stopping = true));
process.stdin.resume();

/** The grant that is noted for the hold, if one is. */
let id: string | null = null;
let count = 0;

function over(kind: "release" | "lost", why = ""): void {
  if (id === null) return;
  history.note(kind === "lost" ? { kind, id, why } : { kind, id });
  id = null;
}

async function open(): Promise<OlderProgram> {
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
      return await OlderProgram.open(nc, { node, ttlMs, bucket: "leases" }, {
        // It leaves no tenure record: what the agents' records say of them, it says of itself.
        acquired: (store, { epoch }) =>
          history.note({ kind: "tenure", store, node, epoch, closed: false }),
        lost: () => over("lost", "entry"),
      });
    } catch {
      await Bun.sleep(WRITE_PAUSE_MS);
    }
  }
}

/** Holds a store for a while, if it can be had. */
async function turn(program: OlderProgram, store: string): Promise<void> {
  program.want(store);
  const wantedMs = bootTimeMs();
  while (program.holdOf(store) === null) {
    if (stopping || bootTimeMs() > wantedMs + WANT_MS) return await letGo(program, store);
    await Bun.sleep(20);
  }
  const untilMs = bootTimeMs() + random.between(...KEEP_MS);
  for (let seq = 1; !stopping && bootTimeMs() < untilMs; seq++) {
    const hold = program.holdOf(store);
    if (hold === null) break;
    const { epoch, deadlineMs } = hold;
    if (id === null) {
      id = `${node}/${generation}.#${++count}`;
      history.note({ kind: "grant", id, node, store, epoch, deadlineMs });
      seq = 1;
    } else {
      history.note({ kind: "extended", id, by: "renewed", deadlineMs });
    }
    write(store, { epoch, seq, deadlineMs });
    await Bun.sleep(WRITE_PAUSE_MS);
  }
  await letGo(program, store);
}

function write(
  store: string,
  { epoch, seq, deadlineMs }: { epoch: number; seq: number; deadlineMs: number },
): void {
  const fd = openSync(join(logs, store), "a");
  try {
    const t = bootTimeMs();
    if (t > deadlineMs - WRITE_MARGIN_MS) return;
    writeSync(fd, JSON.stringify({ t, id, node, epoch, seq }) + "\n");
  } finally {
    closeSync(fd);
  }
  history.note({ kind: "wrote", id: id!, seq });
}

async function letGo(program: OlderProgram, store: string): Promise<void> {
  over("release");
  const hold = program.holdOf(store);
  if (hold !== null) {
    history.note({ kind: "tenure", store, node, epoch: hold.epoch, closed: true });
  }
  // Without an answer the entry ages out.
  await program.release(store).catch(() => {});
}

const program = await open();
void program.run();
while (!stopping) {
  await turn(program, random.pick(options.stores));
  const untilMs = bootTimeMs() + random.between(...PAUSE_MS);
  while (!stopping && bootTimeMs() < untilMs) await Bun.sleep(50);
}
process.exit(0);
