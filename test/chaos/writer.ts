/**
 * Writers on one host: clients that guard stores and append to their logs as the protocol demands,
 * and commands under `agent guard` that append blindly and must be stopped. All of it is noted.
 *
 * `bun writer.ts OPTIONS`, a JSON object. Ends when its standard input does, after finishing what it
 * has asked for.
 * @module
 */
import { closeSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import {
  AgentError,
  AgentUnreachable,
  type Connection,
  openConnection,
} from "../../src/client/mod.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { HistoryFile } from "./history.ts";
import { Random } from "../support/random.ts";
import { Section } from "./client_section.ts";

/** What the writers are told. */
export interface WriterOptions {
  readonly node: string;
  readonly socket: string;
  readonly agent: string;
  readonly stores: readonly string[];
  /** Directory of the stores' logs, shared by all nodes. */
  readonly logs: string;
  /** Directory for histories. */
  readonly histories: string;
  readonly seed: number;
  readonly generation: number;
  /** Clients of the socket, and loops of `agent guard`. */
  readonly clients: number;
  readonly guards: number;
}

const PAUSE_MS = [20, 400] as const;
const RECONNECT_MS = 100;

let stopping = false;

/** A loop of requests by one client of the socket. */
class SocketWriter {
  readonly #options: WriterOptions;
  readonly #random: Random;
  readonly #history: HistoryFile;
  readonly #prefix: string;
  #count = 0;

  constructor(options: WriterOptions, index: number, random: Random, history: HistoryFile) {
    this.#options = options;
    this.#random = random;
    this.#history = history;
    this.#prefix = `${options.node}/${options.generation}.${index}#`;
  }

  async run(): Promise<void> {
    while (!stopping) {
      let connection: Connection;
      try {
        connection = await openConnection({ socket: this.#options.socket });
      } catch {
        await Bun.sleep(RECONNECT_MS);
        continue;
      }
      let open = true;
      connection.closed.then(() => (open = false));
      while (open && !stopping) {
        await this.#attempt(connection);
        await Bun.sleep(this.#random.between(...PAUSE_MS));
      }
      await connection.close();
    }
  }

  async #attempt(connection: Connection): Promise<void> {
    const { node, stores } = this.#options;
    const store = this.#random.pick(stores);
    const waitMs = this.#random.pick([0, 0, 500, 3_000]);
    const waitLease = this.#random.chance(0.5);
    const follow = this.#random.chance(0.5);
    const curious = this.#random.chance(1 / 4);
    // One in six writes long enough for a fault to come in between.
    const long = this.#random.chance(1 / 6);
    const writes = long ? this.#random.between(20, 80) : this.#random.between(1, 5);
    const pauseMs = long ? 100 : this.#random.pick([0, 5, 50, 400]);
    const id = `${this.#prefix}${++this.#count}`;
    const base = { id, node, store };
    this.#history.note({ kind: "ask", ...base, via: "socket", waitMs, waitLease });
    let grant;
    try {
      grant = await connection.call("guard", {
        store,
        wait_ms: waitMs,
        wait_lease: waitLease,
        follow,
      });
    } catch (error) {
      this.#refused(base, error);
      return;
    }
    const { epoch, deadline_boot_ms: deadlineMs, token } = grant;
    this.#history.note({ kind: "grant", ...base, epoch, deadlineMs });
    const section = new Section(connection, this.#history, { id, token, store, deadlineMs });
    try {
      for (let seq = 1; seq <= writes; seq++) {
        if (!await section.prove()) return;
        if (!this.#write(section, { ...base, epoch, seq })) return;
        await Bun.sleep(pauseMs);
      }
    } finally {
      await section.release(curious);
    }
  }

  /** Appends one line; false when the deadline is too near, or the grant is over. */
  #write(
    section: Section,
    line: { id: string; node: string; store: string; epoch: number; seq: number },
  ): boolean {
    const { store, ...rest } = line;
    const fd = openSync(join(this.#options.logs, store), "a");
    try {
      const t = bootTimeMs();
      if (!section.mayWrite(t)) return false;
      writeSync(fd, JSON.stringify({ t, ...rest }) + "\n");
    } finally {
      closeSync(fd);
    }
    this.#history.note({ kind: "wrote", id: line.id, seq: line.seq });
    return true;
  }

  #refused(base: { id: string; node: string; store: string }, error: unknown): void {
    if (!(error instanceof AgentError)) throw error;
    const { holder, retryAfterMs, message, kind } = error;
    this.#history.note({
      kind: "refused",
      ...base,
      why: error instanceof AgentUnreachable ? "gone" : kind,
      holder: holder && { node: holder.node, epoch: holder.epoch },
      retryAfterMs,
      message,
    });
  }
}

/** A loop of `agent guard` with a command that appends and looks at nothing. */
async function runGuards(
  options: WriterOptions,
  index: number,
  random: Random,
  history: HistoryFile,
): Promise<void> {
  const { node, stores, agent, socket, logs, histories, generation } = options;
  for (let count = 1; !stopping; count++) {
    const store = random.pick(stores);
    const id = `${node}/${generation}.g${index}#${count}`;
    const waitMs = random.pick([0, 2_000]);
    const waitLease = random.chance(0.5);
    const base = { id, node, store };
    const writes = random.between(2, 60);
    history.note({ kind: "ask", ...base, via: "guard", waitMs, waitLease, writes });
    const child = Bun.spawn({
      cmd: [
        agent,
        "guard",
        store,
        "--wait",
        `${waitMs}ms`,
        ...(waitLease ? ["--wait-lease"] : []),
        "--",
        // One in three leaves its group and its parent, as a careless daemon would.
        ...(random.chance(1 / 3) ? ["setsid", "--fork", "--wait"] : []),
        "sh",
        join(import.meta.dir, "guarded_writer.sh"),
      ],
      env: {
        PATH: process.env.PATH!,
        ZIT_AGENT_SOCKET: socket,
        CHAOS_ID: id,
        CHAOS_LOG: join(logs, store),
        CHAOS_HISTORY: join(histories, `guard-${node}-${generation}-${index}.jsonl`),
        CHAOS_WRITES: String(writes),
      },
      stdin: "ignore",
      stdout: "ignore",
      stderr: "pipe",
    });
    // One in six wrappers is killed: the command must not outlive the lease all the same.
    const killAfterMs = random.chance(1 / 6) ? random.between(50, 1_500) : null;
    const timer = killAfterMs === null
      ? null
      : setTimeout(() => child.kill("SIGKILL"), killAfterMs);
    const message = (await new Response(child.stderr).text()).trim().slice(0, 300);
    const status = await child.exited;
    if (timer !== null) clearTimeout(timer);
    if (child.signalCode !== null || status === 0) history.note({ kind: "exit", id, status });
    else history.note({ kind: "refused", ...base, why: `exit ${status}`, message });
    await Bun.sleep(random.between(...PAUSE_MS));
  }
}

if (import.meta.main) {
  const options = JSON.parse(process.argv[2]) as WriterOptions;
  const name = `writer-${options.node}-${options.generation}.jsonl`;
  const history = new HistoryFile(join(options.histories, name));
  const random = new Random(options.seed + options.generation * 7_919);
  process.stdin.on("end", () => (stopping = true));
  process.stdin.resume();
  const loops: Promise<void>[] = [];
  for (let i = 0; i < options.clients; i++) {
    loops.push(new SocketWriter(options, i, random.fork(), history).run());
  }
  for (let i = 0; i < options.guards; i++) {
    loops.push(runGuards(options, i, random.fork(), history));
  }
  await Promise.all(loops);
  process.exit(0);
}
