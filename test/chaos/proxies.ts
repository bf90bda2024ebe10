/**
 * Proxies as processes on the hosts of a run.
 * @module
 */
import { join } from "node:path";
import { reap, reaped } from "../support/reaper.ts";
import type { Host } from "./network.ts";
import type { Order } from "./proxy.ts";

/** A running proxy. */
export class Proxy {
  /** Where it listens, in the order of its targets. */
  readonly ports: readonly number[];
  readonly #process: Bun.Subprocess<"pipe", "pipe", "inherit">;

  /** Starts one on a host; each pair is where to listen and where to forward to, `HOST:PORT`. */
  static async start(host: Host, pairs: readonly (readonly [string, string])[]): Promise<Proxy> {
    const child = Bun.spawn({
      cmd: host.on([
        process.execPath,
        join(import.meta.dir, "proxy.ts"),
        ...pairs.map((pair) => pair.join("=")),
      ]),
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
    });
    reap(child.pid);
    const reader = child.stdout.getReader();
    const decoder = new TextDecoder();
    let text = "";
    while (!text.includes("\n")) {
      const { value, done } = await reader.read();
      if (done) throw new Error(`The proxy on ${host.name} ended before it listened`);
      text += decoder.decode(value, { stream: true });
    }
    return new Proxy(child, JSON.parse(text) as number[]);
  }

  private constructor(child: Bun.Subprocess<"pipe", "pipe", "inherit">, ports: readonly number[]) {
    this.#process = child;
    this.ports = ports;
  }

  /** Tells it to delay or hold. */
  tell(order: Order): void {
    this.#process.stdin.write(JSON.stringify(order) + "\n");
    this.#process.stdin.flush();
  }

  async stop(): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#process.exited;
    reaped(this.#process.pid);
  }
}
