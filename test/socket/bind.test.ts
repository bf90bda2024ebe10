import { describe, expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { SocketError } from "../../src/socket/path_checks.ts";
import { SocketServer } from "../../src/socket/server.ts";
import {
  openOptions,
  python,
  RawClient,
  spawnProgram,
  TemporaryDirectory,
} from "./support/server.ts";
import { freezeProcess } from "../support/freeze.ts";

function newServer(): SocketServer {
  return new SocketServer(
    openOptions({ held: (_params, _connection, reply) => reply.ok({ held: true }) }),
  );
}

/** Starts a server as a process of its own; the result is its first line, and how to stop it. */
async function serve(...args: string[]) {
  const child = spawnProgram("serve.ts", ...args);
  const reader = child.stdout.getReader();
  const { value } = await reader.read();
  return {
    pid: child.pid,
    said: new TextDecoder().decode(value).trim(),
    async stop() {
      child.stdin.end();
      return await child.exited;
    },
    async kill() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

async function heldOver(path: string): Promise<unknown> {
  using client = await RawClient.connect(path);
  client.request(1, "held", { store: "held" });
  return (await client.message()).result;
}

/** Waits for a file in an empty directory, not letting much happen after it was made. */
async function untilBound(directory: string): Promise<string> {
  while (true) {
    for (let i = 0; i < 20; i++) {
      const [name] = readdirSync(directory);
      if (name !== undefined) return join(directory, name);
      await null;
    }
    await new Promise(setImmediate);
  }
}

async function failure(path: string): Promise<SocketError> {
  const error = await newServer().listen(path).then(() => null, (error) => error);
  expect(error).toBeInstanceOf(SocketError);
  return error;
}

/** Python that listens with a queue of one connection, and fills it. */
const FULL_QUEUE = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(0)
c = socket.socket(socket.AF_UNIX)
c.connect(sys.argv[1])
print("full", flush=True)
sys.stdin.read()
`;

describe("SocketServer listen()", () => {
  test.each(["000", "077", "777"])(
    "makes a socket of mode 0660 when the umask is %s",
    async (umask) => {
      using directory = new TemporaryDirectory();
      const path = join(directory.path, "agent.sock");
      const server = await serve(path, `umask=${umask}`);
      expect(server.said).toBe("listening");
      expect((statSync(path).mode & 0o7777).toString(8)).toBe("660");
      expect(readdirSync(directory.path)).toEqual(["agent.sock"]);
      expect(await server.stop()).toBe(0);
      expect(readdirSync(directory.path)).toEqual([]);
    },
  );

  test("is at no time wider open than 0660", async () => {
    using directory = new TemporaryDirectory();
    const server = newServer();
    const umask = process.umask(0);
    const listening = server.listen(join(directory.path, "agent.sock"));
    const temporary = await untilBound(directory.path);
    expect((statSync(temporary).mode & 0o7777).toString(8)).toBe("660");
    await listening;
    process.umask(umask);
    await server.stop();
  });

  test("refuses when another takes the path just before it does", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const server = newServer();
    const listening = server.listen(path).then(() => null, (error) => error);
    await untilBound(directory.path);
    const other = createServer().listen(path);
    expect(await listening).toMatchObject({ name: "SocketError", exit: 73, pid: process.pid });
    expect(readdirSync(directory.path)).toEqual(["agent.sock"]);
    other.close();
  });

  test("replaces a socket file that an agent left that was killed", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    await (await serve(path)).kill();
    expect(statSync(path).isSocket()).toBe(true);
    const server = newServer();
    await server.listen(path);
    expect(await heldOver(path)).toEqual({ held: true });
    expect(readdirSync(directory.path)).toEqual(["agent.sock"]);
    await server.stop();
  });

  test("refuses with exit 73 and the other's pid when an agent listens there", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const first = await serve(path);
    const second = await serve(path);
    const { message, exit, pid } = JSON.parse(second.said);
    expect({ exit, pid }).toEqual({ exit: 73, pid: first.pid });
    expect(message).toContain(`Cannot listen on ${path}: process ${first.pid} listens there`);
    expect(await second.stop()).toBe(73);
    expect(await heldOver(path)).toEqual({ held: true });
    expect(readdirSync(directory.path)).toEqual(["agent.sock"]);
    await first.stop();
  });

  test("refuses when an agent listens there that is stopped and answers nothing", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const first = await serve(path);
    freezeProcess(first.pid);
    expect((await failure(path)).pid).toBe(first.pid);
    await first.kill();
  });

  test("refuses when an agent's queue is full, so that connecting is refused", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const child = Bun.spawn(["python3", "-c", FULL_QUEUE, path], { stdin: "pipe" });
    await child.stdout.getReader().read();
    expect(await failure(path)).toMatchObject({ exit: 73, pid: null });
    child.stdin.end();
    await child.exited;
    const server = newServer();
    await server.listen(path);
    await server.stop();
  });

  test("lets one of several have a path that they take at once", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const servers = await Promise.all([1, 2, 3, 4, 5].map(() => serve(path)));
    const winners = servers.filter((server) => server.said === "listening");
    expect(winners).toHaveLength(1);
    expect(await heldOver(path)).toEqual({ held: true });
    for (const server of servers) expect(await server.stop()).toBe(server === winners[0] ? 0 : 73);
  });

  test("leaves the path alone at stop() when it is another's by then", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const first = newServer();
    await first.listen(path);
    expect(first.reachable).toBe(true);
    renameSync(path, `${path}.away`);
    expect(first.reachable).toBe(false);
    const second = newServer();
    await second.listen(path);
    await first.stop();
    expect(await heldOver(path)).toEqual({ held: true });
    await second.stop();
    expect(existsSync(path)).toBe(false);
  });

  test("refuses a path where something else is, and leaves that be", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    writeFileSync(path, "precious");
    expect((await failure(path)).message).toBe(
      `Cannot listen on ${path}: the file exists and is not a socket; remove it, or give another ` +
        "path with --socket",
    );
    expect(readFileSync(path, "utf8")).toBe("precious");
    const link = join(directory.path, "link.sock");
    symlinkSync(path, link);
    expect((await failure(link)).message).toContain("is not a socket");
    expect(readdirSync(directory.path).sort()).toEqual(["agent.sock", "link.sock"]);
  });

  test("names the directory when it is missing or not one", async () => {
    using directory = new TemporaryDirectory();
    const missing = await failure(join(directory.path, "none", "agent.sock"));
    expect(missing.message).toContain(`${directory.path}/none: there is no such directory`);
    expect(missing.exit).toBe(73);
    writeFileSync(join(directory.path, "file"), "");
    const file = await failure(join(directory.path, "file", "agent.sock"));
    expect(file.message).toContain(`${directory.path}/file: not a directory`);
  });

  test("refuses a directory in which others could replace the socket", async () => {
    using directory = new TemporaryDirectory();
    const open = join(directory.path, "open");
    mkdirSync(open);
    chmodSync(open, 0o777);
    expect((await failure(join(open, "agent.sock"))).message).toContain(`chmod o-w ${open}`);
    chmodSync(open, 0o1777);
    const server = newServer();
    await server.listen(join(open, "agent.sock"));
    await server.stop();
  });

  test.skipIf(process.getuid!() !== 0)(
    "refuses a directory that belongs to another user",
    async () => {
      using directory = new TemporaryDirectory();
      const foreign = join(directory.path, "foreign");
      mkdirSync(foreign);
      chownSync(foreign, 12_345, 12_345);
      expect((await failure(join(foreign, "agent.sock"))).message).toContain(
        "belongs to user 12345",
      );
    },
  );

  test("takes a path of 107 bytes and refuses one of 108", async () => {
    using directory = new TemporaryDirectory();
    const fitting = join(directory.path, "x".repeat(106 - directory.path.length));
    expect(fitting).toHaveLength(107);
    const server = newServer();
    await server.listen(fitting);
    expect(await heldOver(fitting)).toEqual({ held: true });
    expect((statSync(fitting).mode & 0o7777).toString(8)).toBe("660");
    await server.stop();
    expect(readdirSync(directory.path)).toEqual([]);
    const error = await failure(`${fitting}x`);
    expect(error.message).toContain("has 108 bytes, a socket's at most 107");
    expect(error.exit).toBe(64);
    const wide = await failure(join(directory.path, "é".repeat(60)));
    expect(wide.message).toContain("a socket's at most 107");
  });
});

describe("SocketServer listenOn()", () => {
  test("serves on a socket that was passed in as systemd does, and leaves its file", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "passed.sock");
    const program = join(import.meta.dir, "support", "serve.ts");
    const printed = await python(
      `
import socket, sys, os, json, subprocess
path, bun, program = sys.argv[1:]
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen(8)
os.dup2(s.fileno(), 3)
# The pid must be that of the server itself: exec after setting it, as systemd does.
starter = "import os, sys; os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.execv(sys.argv[1], sys.argv[1:])"
child = subprocess.Popen([sys.executable, "-c", starter, bun, program, "/nowhere"], pass_fds=[3], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(child.stdout.readline().strip())
c = socket.socket(socket.AF_UNIX)
c.connect(path)
c.sendall(b'{"jsonrpc":"2.0","id":1,"method":"held","params":{"store":"held"}}\\n')
print(c.recv(65536).decode().strip())
child.stdin.close()
print(child.wait(), os.path.exists(path))
`,
      path,
      process.execPath,
      program,
    );
    expect(printed.split("\n")).toEqual([
      "listening",
      '{"jsonrpc":"2.0","id":1,"result":{"held":true}}',
      "0 True",
      "",
    ]);
  });

  test("refuses a descriptor that is no socket", async () => {
    const fd = openSync("/dev/null", "r");
    const error = await newServer().listenOn(fd).then(() => null, (error) => error);
    closeSync(fd);
    expect(error).toBeInstanceOf(SocketError);
    expect(error.message).toContain(`descriptor ${fd}: it is not a socket`);
    const closed = await newServer().listenOn(9_999).then(() => null, (error) => error);
    expect(closed).toBeInstanceOf(SocketError);
  });
});
