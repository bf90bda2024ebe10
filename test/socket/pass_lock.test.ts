import { describe, expect, test } from "bun:test";
import { closeSync, openSync, readdirSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Handlers } from "../../src/socket/handlers.ts";
import type { GuardResult } from "../../src/socket/protocol.ts";
import { sendWithDescriptor as sendWithFd } from "../../src/sys/unix_socket.ts";
import { python, TemporaryDirectory, TestServer } from "./support/server.ts";

function grant(store: string): GuardResult {
  return {
    token: "t",
    store,
    epoch: 1,
    revision: 1,
    node: "n",
    remaining_ms: 1,
    deadline_boot_ms: 1,
    lock_path: "/l",
    unguarded: null,
  };
}

/** Grants pass a file that holds the store's name; `held` answers with `padding` bytes. */
function handlers(directory: string, padding: number): Handlers {
  return {
    held: (_params, _connection, reply) => reply.ok({ held: { ["x".repeat(padding)]: true } }),
    guard(params, connection, reply) {
      const file = join(directory, params.store);
      writeFileSync(file, params.store);
      const fd = openSync(file, "r");
      (connection.data as number[] | undefined ?? (connection.data = [] as number[])).push(fd);
      reply.ok(grant(params.store), params.pass_lock ? () => fd : undefined);
    },
  };
}

const CLOSE_FDS = {
  onClose(connection: { data: unknown }) {
    for (const fd of connection.data as number[] ?? []) closeSync(fd);
  },
};

/** Python that receives everything up to `count` lines: `lines`, and `fds` by the line they came with. */
const RECEIVE = `
import socket, sys, os, json, array, time
def request(id, method, **params):
    return (json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\\n").encode()
def receive(s, count, size=65536):
    data, fds = b"", {}
    while data.count(b"\\n") < count:
        before = data.count(b"\\n")
        part, got, flags, _ = socket.recv_fds(s, size, 8)
        assert not flags & socket.MSG_CTRUNC
        for fd in got:
            # A receive never goes on behind a message with a descriptor: it is that of the last line
            # that began in what was received.
            fds[before + part[:-1].count(b"\\n")] = fd
        if not part: break
        data += part
    return data.decode().splitlines(), fds
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
`;

describe("Reply ok() with a descriptor", () => {
  test("passes it with the answer", async () => {
    using directory = new TemporaryDirectory();
    await using server = await TestServer.start(handlers(directory.path, 1), CLOSE_FDS);
    const printed = await python(
      `${RECEIVE}
s.sendall(request(1, "guard", store="a") + request(2, "guard", store="b", pass_lock=True) + request(3, "held", store="a"))
lines, fds = receive(s, 3)
print([json.loads(line)["id"] for line in lines], {line: os.read(fd, 9) for line, fd in fds.items()})
`,
      server.path,
    );
    expect(printed.trim()).toBe("[1, 2, 3] {1: b'b'}");
    await server.untilClosed(1);
  });

  test("passes each with its own answer when the client reads late and little by little", async () => {
    using directory = new TemporaryDirectory();
    await using server = await TestServer.start(handlers(directory.path, 40_000), CLOSE_FDS);
    const printed = await python(
      `${RECEIVE}
for i in range(20):
    s.sendall(request(3 * i, "held", store="a"))
    s.sendall(request(3 * i + 1, "guard", store="store-%d" % i, pass_lock=True))
    s.sendall(request(3 * i + 2, "guard", store="a"))
time.sleep(0.3)
lines, fds = receive(s, 60, 1000)
print([json.loads(line)["id"] for line in lines] == list(range(60)))
print(all(os.read(fd, 99).decode() == json.loads(lines[line])["result"]["store"] for line, fd in fds.items()), len(fds))
`,
      server.path,
    );
    expect(printed.trim().split("\n")).toEqual(["True", "True 20"]);
    await server.untilClosed(1);
  });

  test("sends the rest when the kernel takes a part, and tries again when it takes nothing", async () => {
    using directory = new TemporaryDirectory();
    let calls = 0;
    await using server = await TestServer.start(handlers(directory.path, 1), {
      ...CLOSE_FDS,
      sendWithFd(socketFd, bytes, fd) {
        calls++;
        return calls % 3 === 0 ? sendWithFd(socketFd, bytes.subarray(0, 5), fd) : 0;
      },
    });
    const printed = await python(
      `${RECEIVE}
s.sendall(request(1, "guard", store="a", pass_lock=True) + request(2, "held", store="a") + request(3, "guard", store="b", pass_lock=True) + request(4, "held", store="b"))
lines, fds = receive(s, 4)
print([json.loads(line)["id"] for line in lines], {line: os.read(fd, 9) for line, fd in fds.items()})
`,
      server.path,
    );
    expect(printed.trim()).toBe("[1, 2, 3, 4] {0: b'a', 2: b'b'}");
    expect(calls).toBe(6);
  });

  test("gives a half-closed client its descriptor before it closes", async () => {
    using directory = new TemporaryDirectory();
    let calls = 0;
    await using server = await TestServer.start(handlers(directory.path, 1), {
      ...CLOSE_FDS,
      sendWithFd: (...args) => ++calls < 5 ? 0 : sendWithFd(...args),
    });
    const printed = await python(
      `${RECEIVE}
s.sendall(request(1, "guard", store="a", pass_lock=True))
s.shutdown(socket.SHUT_WR)
lines, fds = receive(s, 99)
print(len(lines), {line: os.read(fd, 9) for line, fd in fds.items()})
`,
      server.path,
    );
    expect(printed.trim()).toBe("1 {0: b'a'}");
    await server.untilClosed(1);
  });

  test("closes the connection when the descriptor cannot be sent, and touches it no more", async () => {
    using directory = new TemporaryDirectory();
    await using server = await TestServer.start(handlers(directory.path, 1), {
      ...CLOSE_FDS,
      sendWithFd() {
        throw new Error("sendmsg failed: EBADF");
      },
    });
    const printed = await python(
      `${RECEIVE}
s.sendall(request(1, "guard", store="a", pass_lock=True))
print(receive(s, 1))
`,
      server.path,
    );
    expect(printed.trim()).toBe("([], {})");
    await server.untilClosed(1);
  });

  test("a passed lock outlives the server's own descriptor", async () => {
    using directory = new TemporaryDirectory();
    await using server = await TestServer.start(handlers(directory.path, 1), CLOSE_FDS);
    const printed = await python(
      `${RECEIVE}
import fcntl
s.sendall(request(1, "guard", store="a", pass_lock=True))
lines, fds = receive(s, 1)
fcntl.flock(fds[0], fcntl.LOCK_EX)
s.close()
other = os.open(sys.argv[2] + "/a", os.O_RDONLY)
try:
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except BlockingIOError:
    print("locked")
`,
      server.path,
      directory.path,
    );
    expect(printed.trim()).toBe("locked");
    await server.untilClosed(1);
    const open = readdirSync("/proc/self/fd").map((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`);
      } catch {
        return "";
      }
    });
    expect(open).not.toContain(join(directory.path, "a"));
  });
});
