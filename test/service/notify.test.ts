import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Notifier, watchdogIntervalMs } from "../../src/service/notify.ts";
import { sendDatagram } from "../../src/sys/unix_socket.ts";

/** A service manager: a real datagram socket. It reads a line from stdin for each datagram it prints. */
const MANAGER = `
import socket, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
address = sys.argv[1]
manager.bind("\\0" + address[1:] if address.startswith("@") else address)
print("bound", flush=True)
for _ in sys.stdin:
    print(repr(manager.recv(4096).decode()), flush=True)
`;

class Manager {
  readonly directory = mkdtempSync(join(tmpdir(), "zit-notify-"));
  readonly address: string;
  readonly #process;
  readonly #reader;
  #text = "";

  constructor(address = join(this.directory, "notify")) {
    this.address = address;
    this.#process = Bun.spawn({
      cmd: ["python3", "-c", MANAGER, address],
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
    });
    this.#reader = this.#process.stdout.getReader();
  }

  async bound(): Promise<this> {
    expect(await this.#line()).toBe("bound");
    return this;
  }

  async receive(): Promise<string> {
    this.#process.stdin.write("\n");
    await this.#process.stdin.flush();
    return (await this.#line()).slice(1, -1);
  }

  async #line(): Promise<string> {
    while (!this.#text.includes("\n")) {
      const { value, done } = await this.#reader.read();
      if (done) throw new Error("the manager ended");
      this.#text += new TextDecoder().decode(value);
    }
    const end = this.#text.indexOf("\n");
    const line = this.#text.slice(0, end);
    this.#text = this.#text.slice(end + 1);
    return line;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#process.exited;
    rmSync(this.directory, { recursive: true, force: true });
  }
}

test.each([undefined, `@zit-notify-test-${process.pid}`])(
  "Notifier() tells READY, STATUS, WATCHDOG and STOPPING in order to %p",
  async (address) => {
    await using manager = await new Manager(address).bound();
    const notifier = new Notifier({ address: manager.address, send: sendDatagram });
    await notifier.ready("serving\nas node-1");
    notifier.status("holding 3 stores");
    notifier.watchdog();
    notifier.extendTimeout(1_500);
    await notifier.stopping("draining");
    expect(await manager.receive()).toBe("READY=1\\nSTATUS=serving as node-1");
    expect(await manager.receive()).toBe("STATUS=holding 3 stores");
    expect(await manager.receive()).toBe("WATCHDOG=1");
    expect(await manager.receive()).toBe("EXTEND_TIMEOUT_USEC=1500000");
    expect(await manager.receive()).toBe("STOPPING=1\\nSTATUS=draining");
  },
);

test("Notifier() tells READY again when the manager's queue was full", async () => {
  await using manager = await new Manager().bound();
  const notifier = new Notifier({ address: manager.address, send: sendDatagram });
  let queued = 0;
  while (sendDatagram(manager.address, Buffer.from("STATUS=busy"))) queued++;
  const told = notifier.ready("serving");
  for (let i = 0; i < queued; i++) expect(await manager.receive()).toBe("STATUS=busy");
  await told;
  expect(await manager.receive()).toBe("READY=1\\nSTATUS=serving");
});

test("Notifier() does nothing without a manager, and says once that one does not listen", async () => {
  const errors: string[] = [];
  const onError = (error: Error) => errors.push(error.message);
  const none = new Notifier({ address: undefined, send: sendDatagram, onError });
  await none.ready("serving");
  expect([none.isActive, errors]).toEqual([false, []]);
  const gone = new Notifier({ address: "/nonexistent/notify", send: sendDatagram, onError });
  await gone.ready("serving");
  gone.watchdog();
  expect(errors).toHaveLength(1);
  expect(errors[0]).toContain("Cannot notify the service manager");
});

test("Notifier() gives up on a manager that never reads", async () => {
  const errors: Error[] = [];
  let sent = 0;
  const send = () => {
    sent++;
    return false;
  };
  const notifier = new Notifier({ address: "/x", send, onError: (error) => errors.push(error) });
  await notifier.ready("serving");
  expect(sent).toBeGreaterThan(10);
  expect(errors.map((error) => error.message)).toEqual([
    "Cannot notify the service manager: the service manager does not read",
  ]);
});

test.each([
  [{}, null],
  [{ WATCHDOG_USEC: "30000000" }, 10_000],
  [{ WATCHDOG_USEC: "30000000", WATCHDOG_PID: "7" }, 10_000],
  [{ WATCHDOG_USEC: "30000000", WATCHDOG_PID: "8" }, null],
  [{ WATCHDOG_USEC: "0" }, null],
  [{ WATCHDOG_USEC: "x" }, null],
])("watchdogIntervalMs() of %p is %p", (env, ms) => {
  expect(watchdogIntervalMs(env, 7)).toBe(ms);
});
