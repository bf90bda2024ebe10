/**
 * Replays exchanges with the client for TypeScript: replay.ts VARIABLES.json EXCHANGE.json…
 *
 * The format is described in ../README.md. Lines go through the client's own socket and splitter, and
 * each refusal becomes the error that programs catch, whose class is looked at.
 * @module
 */
import { once } from "node:events";
import { readFileSync, unlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { basename } from "node:path";
import { openSocket } from "../../../src/client/connect.ts";
import { agentError } from "../../../src/client/errors.ts";
import * as client from "../../../src/client/mod.ts";
import { LineSplitter } from "../../../src/socket/lines.ts";
import { freezeProcess } from "../../support/freeze.ts";

/** As in the README. */
const TIMEOUT_MS = 60_000;
const MAX_LINE_BYTES = 1_048_576;

// deno-lint-ignore no-explicit-any
type Json = any;

class Mismatch extends Error {}

/** A connection, and what came on it and was not yet wanted. */
class Lines {
  readonly unread: Json[] = [];
  ended = false;
  readonly #socket: Socket;
  readonly #splitter = new LineSplitter(MAX_LINE_BYTES);

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => {}); // its close follows
    socket.on("close", () => this.#news(true));
    socket.on("data", (chunk: Buffer) => {
      this.#splitter.push(chunk);
      for (let line = this.#splitter.next(); line !== null; line = this.#splitter.next()) {
        this.unread.push(JSON.parse(line as string));
      }
      this.#news(false);
    });
    socket.resume();
  }

  #news(ended: boolean): void {
    this.ended ||= ended;
    this.#socket.emit("news");
  }

  send(text: string): void {
    this.#socket.write(text);
  }

  shutdown(): void {
    this.#socket.end();
  }

  close(): void {
    this.#socket.destroy();
  }

  /** Waits until something came, or the end did. */
  async news(): Promise<void> {
    try {
      await once(this.#socket, "news", { signal: AbortSignal.timeout(TIMEOUT_MS) });
    } catch {
      throw new Mismatch(`nothing more came; unread: ${JSON.stringify(this.unread)}`);
    }
  }
}

function matches(pattern: Json, value: Json): boolean {
  if (pattern === "<any>") return true;
  const type = /^<(string|number|boolean)>$/.exec(pattern)?.[1];
  // deno-lint-ignore valid-typeof -- one of the three names matched above
  if (type !== undefined) return typeof value === type;
  if (Array.isArray(pattern)) {
    return Array.isArray(value) && value.length === pattern.length &&
      pattern.every((each, i) => matches(each, value[i]));
  }
  if (pattern === null || typeof pattern !== "object") return pattern === value;
  return typeof value === "object" && value !== null && !Array.isArray(value) &&
    Object.entries(pattern).every(([name, each]) =>
      Object.hasOwn(value, name) && matches(each, value[name])
    );
}

/** Whether the error that programs get tells what the agent said, by its class, too. */
function checkError(error: Json): void {
  const { kind } = error.data ?? { kind: "internal" };
  const name = `${kind.replace(/(?:^|_)(\w)/g, (_: string, c: string) => c.toUpperCase())}Error`;
  const thrown = agentError(error);
  const Class = kind === "internal"
    ? client.AgentError
    : (client as unknown as Record<string, typeof client.AgentError>)[name];
  const tells = thrown.kind === kind && thrown.code === error.code &&
    thrown.message === error.message &&
    thrown.retryAfterMs === (error.data?.retry_after_ms ?? null) &&
    thrown.holder?.node === error.data?.holder?.node;
  if (!tells || thrown.constructor !== Class) throw new Mismatch(`${thrown} is of ${error}`);
}

class Replay {
  readonly #variables: Record<string, Json>;
  readonly #connections = new Map<string, Lines>();

  constructor(variables: Record<string, Json>) {
    this.#variables = variables;
  }

  #fill(value: Json): Json {
    if (typeof value === "string" && value.startsWith("$")) return this.#variables[value.slice(1)];
    if (Array.isArray(value)) return value.map((each) => this.#fill(each));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [this.#fill(name), this.#fill(each)]),
    );
  }

  async #on(name: string): Promise<Lines> {
    const known = this.#connections.get(name);
    if (known !== undefined) return known;
    const lines = new Lines(await openSocket({ socket: this.#variables.socket }));
    this.#connections.set(name, lines);
    return lines;
  }

  async step(step: Json): Promise<void> {
    if (step.remove !== undefined) return unlinkSync(this.#fill(step.remove));
    if (step.signal === "SIGSTOP") return freezeProcess(this.#fill(step.pid));
    if (step.signal !== undefined) return void process.kill(this.#fill(step.pid), step.signal);
    if (step.lock !== undefined) return await this.#lock(this.#fill(step.lock), step.free);
    if (step.greater !== undefined) {
      if (this.#fill(step.greater) > this.#fill(step.than)) return;
      throw new Mismatch(`${step.greater} is not greater than ${step.than}`);
    }
    const lines = await this.#on(step.on);
    if (step.send !== undefined) return lines.send(`${JSON.stringify(this.#fill(step.send))}\n`);
    if (step.raw !== undefined) {
      return lines.send(
        step.raw.replace(/\$(\w+)/g, (_: string, name: string) => this.#variables[name]),
      );
    }
    if (step.receive !== undefined) return await this.#receive(lines, step);
    if (step.unread !== undefined) {
      if (lines.unread.length === step.unread) return;
      throw new Mismatch(`unread: ${JSON.stringify(lines.unread)}`);
    }
    if (step.shutdown) return lines.shutdown();
    if (step.close) return lines.close();
    if (step.closed) {
      while (!lines.ended && lines.unread.length === 0) await lines.news();
      if (lines.unread.length === 0) return;
      throw new Mismatch(`not closed, but ${JSON.stringify(lines.unread)}`);
    }
    throw new Error(`unknown step ${JSON.stringify(step)}`);
  }

  async #receive(lines: Lines, { receive, save = {} }: Json): Promise<void> {
    const pattern = this.#fill(receive);
    let at = lines.unread.findIndex((message) => matches(pattern, message));
    while (at < 0) {
      const came = JSON.stringify(lines.unread);
      if (lines.ended) throw new Mismatch(`no ${JSON.stringify(pattern)} before the end: ${came}`);
      await lines.news();
      at = lines.unread.findIndex((message) => matches(pattern, message));
    }
    const [message] = lines.unread.splice(at, 1);
    if (message.error !== undefined) checkError(message.error);
    for (const [variable, path] of Object.entries<string>(save)) {
      this.#variables[variable] = path.split(".").reduce((value, member) => value[member], message);
    }
  }

  async #lock(path: string, free: boolean): Promise<void> {
    const end = performance.now() + TIMEOUT_MS;
    while ((Bun.spawnSync(["flock", "-n", path, "true"]).exitCode === 0) !== free) {
      if (!free || performance.now() > end) throw new Mismatch(`the lock is free: ${!free}`);
      await Bun.sleep(5);
    }
  }

  close(): void {
    for (const lines of this.#connections.values()) lines.close();
  }
}

if (import.meta.main) {
  const [variablesFile, ...files] = process.argv.slice(2);
  const variables = JSON.parse(readFileSync(variablesFile!, "utf8"));
  for (const file of files) {
    const name = basename(file, ".json");
    const { needs = [], steps } = JSON.parse(readFileSync(file, "utf8"));
    if (needs.length > 0) {
      console.log(`skipped ${name}`); // this runtime receives no descriptors
      continue;
    }
    const replay = new Replay(variables[name]);
    let number = 0;
    try {
      for (const step of steps) {
        number++;
        await replay.step(step);
      }
      console.log(`ok ${name}`);
    } catch (error) {
      console.error(`${name}, step ${number}: ${(error as Error).message}`);
      process.exitCode = 1;
    } finally {
      replay.close();
    }
  }
}
