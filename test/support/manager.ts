/** A service manager's ear: a real datagram socket that keeps all it is told. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./wait.ts";

const LISTENER = `
import socket, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(sys.argv[1])
print("bound", flush=True)
while True:
    print(manager.recv(4096).decode().replace("\\n", "|"), flush=True)
`;

/** Listens while a test runs. */
export class ServiceManager {
  readonly directory = mkdtempSync(join(tmpdir(), "zit-manager-"));
  readonly address = join(this.directory, "notify");
  /** All it was told, each with its lines joined by `|`. */
  readonly told: string[] = [];
  readonly #process;

  static async start(): Promise<ServiceManager> {
    const manager = new ServiceManager();
    await manager.heard(/^bound$/);
    return manager;
  }

  private constructor() {
    this.#process = Bun.spawn({
      cmd: ["python3", "-c", LISTENER, this.address],
      stdout: "pipe",
      stderr: "inherit",
    });
    void this.#read();
  }

  /** The first message like this after the first `from`, waited for. */
  heard(pattern: RegExp, from = 0): Promise<string> {
    return until(
      `the manager is told ${pattern}, not only ${JSON.stringify(this.told.slice(-5))}`,
      () => this.told.slice(from).find((message) => pattern.test(message)),
    );
  }

  /** How many messages like this it was told. */
  count(pattern: RegExp): number {
    return this.told.filter((message) => pattern.test(message)).length;
  }

  async #read(): Promise<void> {
    let text = "";
    for await (const chunk of this.#process.stdout) {
      const lines = (text + new TextDecoder().decode(chunk)).split("\n");
      text = lines.pop()!;
      this.told.push(...lines);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#process.exited;
    rmSync(this.directory, { recursive: true, force: true });
  }
}
