import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openNotifier } from "../../src/service/notify.ts";
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
  "openNotifier() tells all it has to tell, in order, to %p",
  async (address) => {
    await using manager = await new Manager(address).bound();
    const notifier = openNotifier({ NOTIFY_SOCKET: manager.address });
    notifier.ready("serving");
    notifier.status("holding 3 stores\nand more");
    notifier.watchdog();
    notifier.reloading();
    notifier.ready("serving");
    notifier.stopping("draining\nREADY=1");
    notifier.extendTimeout(1_500);
    expect(await manager.receive()).toBe("READY=1\\nSTATUS=serving");
    expect(await manager.receive()).toBe("STATUS=holding 3 stores and more");
    expect(await manager.receive()).toBe("WATCHDOG=1");
    expect(await manager.receive()).toMatch(/^RELOADING=1\\nMONOTONIC_USEC=\d+$/);
    expect(await manager.receive()).toBe("READY=1\\nSTATUS=serving");
    expect(await manager.receive()).toBe("STOPPING=1\\nSTATUS=draining READY=1");
    expect(await manager.receive()).toBe("EXTEND_TIMEOUT_USEC=1500000");
  },
);

test("openNotifier() tells READY again when the manager's queue was full", async () => {
  await using manager = await new Manager().bound();
  const notifier = openNotifier({ NOTIFY_SOCKET: manager.address });
  let queued = 0;
  while (sendDatagram(manager.address, Buffer.from("STATUS=busy"))) queued++;
  expect(queued).toBeGreaterThan(0);
  notifier.ready("serving");
  notifier.stopping("over"); // which may not overtake
  for (let i = 0; i < queued; i++) expect(await manager.receive()).toBe("STATUS=busy");
  expect(await manager.receive()).toBe("READY=1\\nSTATUS=serving");
  expect(await manager.receive()).toBe("STOPPING=1\\nSTATUS=over");
  notifier.close();
});

test.each([
  [{}, 0],
  [{ NOTIFY_SOCKET: "" }, 0],
  [{ NOTIFY_SOCKET: "/nonexistent/notify" }, 1],
])("openNotifier() with %p goes on, and complains %p times", (env, complaints) => {
  const errors: string[] = [];
  const onError = (error: Error) => errors.push(error.message);
  const notifier = openNotifier(env as Record<string, string>, { onError });
  notifier.ready("serving");
  notifier.watchdog();
  notifier.stopping("over");
  notifier.close();
  expect(errors).toHaveLength(complaints);
  for (const error of errors) expect(error).toContain("Cannot notify the service manager");
});

test("openNotifier() gives up on a manager that never reads", async () => {
  let tries = 0;
  const failed = new Promise<string>((resolve) => {
    const send = () => {
      tries++;
      return false;
    };
    openNotifier({ NOTIFY_SOCKET: "/x" }, { send, onError: (error) => resolve(error.message) })
      .ready("serving");
  });
  expect(await failed).toContain("it does not read");
  expect(tries).toBeGreaterThan(10);
});

test("openNotifier() takes the manager's variables away from children", () => {
  const env = { NOTIFY_SOCKET: "/x", WATCHDOG_USEC: "1", WATCHDOG_PID: "1", PATH: "/bin" };
  openNotifier(env);
  expect(Object.keys(env)).toEqual(["PATH"]);
});

test.each([
  [{}, null],
  [{ NOTIFY_SOCKET: "/x", WATCHDOG_USEC: "30000000" }, 30_000],
  [{ NOTIFY_SOCKET: "/x", WATCHDOG_USEC: "30000000", WATCHDOG_PID: `${process.pid}` }, 30_000],
  [{ NOTIFY_SOCKET: "/x", WATCHDOG_USEC: "30000000", WATCHDOG_PID: "1" }, null],
  [{ NOTIFY_SOCKET: "/x", WATCHDOG_USEC: "0" }, null],
  [{ NOTIFY_SOCKET: "/x", WATCHDOG_USEC: "x" }, null],
  [{ WATCHDOG_USEC: "30000000" }, null],
])("openNotifier() with %p wants to be fed every %p ms", (env, ms) => {
  expect(openNotifier({ ...env }).watchdogMs).toBe(ms);
});
