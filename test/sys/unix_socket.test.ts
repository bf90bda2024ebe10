import { expect, test } from "bun:test";
import { once } from "node:events";
import { closeSync, fstatSync, openSync, readFileSync, writeSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { tryFlock } from "../../src/sys/flock.ts";
import {
  peerOf,
  receiveWithDescriptors,
  sendDatagram,
  sendWithDescriptor,
} from "../../src/sys/unix_socket.ts";
import { child, python } from "../support/child.ts";
import { openedSince, openFds } from "../support/fds.ts";
import { tempDir } from "../support/temp_dir.ts";

/** The descriptor of an accepted connection, as the runtime has it. */
function fdOf(socket: Socket): number {
  return (socket as unknown as { _handle: { fd: number } })._handle.fd;
}

/** A server whose connections are not read until asked. */
async function listen(path: string): Promise<Server> {
  const server = createServer({ pauseOnConnect: true });
  await once(server.listen(path), "listening");
  return server;
}

async function accept(server: Server): Promise<Socket> {
  const [socket] = await once(server, "connection");
  return socket;
}

/** Calls again until the other side has got as far. */
async function until<T>(call: () => T | null): Promise<T> {
  for (;;) {
    const value = call();
    if (value !== null) return value;
    await Bun.sleep(1);
  }
}

const CONNECT = `
import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
`;

test("peerOf() names the process, user and group at the other end", async () => {
  using dir = tempDir();
  const path = join(dir.path, "s");
  const server = await listen(path);
  const accepted = accept(server);
  await child(["chmod", "-R", "a+rwx", dir.path]).ended(); // so that any user can connect
  // Only root can become somebody else; another user is seen as itself.
  const root = process.getuid!() === 0;
  const [uid, gid] = root ? [4321, 1234] : [process.getuid!(), process.getgid!()];
  const become = root ? "import os, socket, sys\nos.setgid(1234); os.setuid(4321)\n" : "";
  await using peer = python(`${become}${CONNECT}\nsys.stdin.readline()`, path);
  const socket = await accepted;
  expect(peerOf(fdOf(socket))).toEqual({ pid: peer.pid, uid, gid });
  socket.destroy();
  server.close();
});

test("peerOf() throws when the descriptor is no socket", () => {
  const fd = openSync("/dev/null", "r");
  expect(() => peerOf(fd)).toThrow(/^getsockopt\(SO_PEERCRED\): .*\(ENOTSOCK\)$/);
  closeSync(fd);
});

test("sendWithDescriptor() gives another process a lock that outlives ours", async () => {
  using dir = tempDir();
  const [path, lock] = [join(dir.path, "s"), join(dir.path, "lock")];
  const server = await listen(path);
  const accepted = accept(server);
  await using peer = python(
    `${CONNECT}
data, fds, flags, _ = socket.recv_fds(s, 100, 4)
print(data.decode(), len(fds), os.fstat(fds[0]).st_ino)
sys.stdin.readline()`,
    path,
  );
  const socket = await accepted;
  const fd = openSync(lock, "w");
  expect(tryFlock(fd)).toBe(true);
  const ino = fstatSync(fd).ino;
  expect(sendWithDescriptor(fdOf(socket), Buffer.from("grant"), fd)).toBe(5);
  expect(await peer.line()).toBe(`grant 1 ${ino}`);
  closeSync(fd);
  expect(await child(["flock", "-n", lock, "true"]).ended()).toBe(1);
  await peer.kill();
  expect(await child(["flock", "-n", lock, "true"]).ended()).toBe(0);
  socket.destroy();
  server.close();
});

test("sendWithDescriptor() sends nothing when the buffer is full, and a part when it is nearly", async () => {
  using dir = tempDir();
  const path = join(dir.path, "s");
  const server = await listen(path);
  const accepted = accept(server);
  await using peer = python(
    `${CONNECT}
for line in sys.stdin:
    n = int(line)
    fds = []; got = 0
    while got < n:
        data, more, flags, _ = socket.recv_fds(s, min(n - got, 65536), 4)
        got += len(data); fds += more
    print(got, len(fds))`,
    path,
  );
  const socket = await accepted;
  const fd = fdOf(socket);
  const file = openSync("/dev/null", "r");
  const big = new Uint8Array(8 * 1024 * 1024);
  const sent = sendWithDescriptor(fd, big, file);
  expect(sent).toBeGreaterThan(0);
  expect(sent).toBeLessThan(big.byteLength);
  const before = openFds();
  expect(sendWithDescriptor(fd, big, file)).toBe(0);
  peer.say(String(sent));
  expect(await peer.line()).toBe(`${sent} 1`);
  expect(sendWithDescriptor(fd, Buffer.from("x"), file)).toBe(1);
  peer.say("1");
  expect(await peer.line()).toBe("1 1");
  expect(openedSince(before)).toEqual([]);
  closeSync(file);
  socket.destroy();
  server.close();
});

test("sendWithDescriptor() throws when the peer is gone, the descriptor closed or no byte is there", async () => {
  using dir = tempDir();
  const path = join(dir.path, "s");
  const server = await listen(path);
  const accepted = accept(server);
  await using peer = python(`${CONNECT}\nsys.stdin.readline()`, path);
  const socket = await accepted;
  const [fd, byte] = [fdOf(socket), Buffer.from("x")];
  expect(() => sendWithDescriptor(fd, byte, 1_000_000)).toThrow("sendmsg: bad file descriptor");
  expect(() => sendWithDescriptor(fd, new Uint8Array(), 0)).toThrow(RangeError);
  await peer.kill();
  expect(() => sendWithDescriptor(fd, byte, 0)).toThrow("sendmsg: broken pipe (EPIPE)");
  socket.destroy();
  server.close();
});

test("receiveWithDescriptors() takes bytes and descriptors, then the end", async () => {
  using dir = tempDir();
  const [path, file] = [join(dir.path, "s"), join(dir.path, "file")];
  const server = await listen(path);
  const accepted = accept(server);
  await using peer = python(
    `${CONNECT}
f = open(sys.argv[2], "w+")
sys.stdin.readline()
socket.send_fds(s, [b"one"], [f.fileno()])
sys.stdin.readline()`,
    path,
    file,
  );
  const socket = await accepted;
  const fd = fdOf(socket);
  expect(receiveWithDescriptors(fd, 100)).toBeNull();
  peer.say("go");
  const { bytes, fds } = await until(() => receiveWithDescriptors(fd, 100));
  expect(Buffer.from(bytes).toString()).toBe("one");
  expect(fds).toHaveLength(1);
  // Not inherited by what this process starts.
  expect(readFileSync(`/proc/self/fdinfo/${fds[0]}`, "utf8")).toMatch(
    /^flags:\t0[0-7]*2[0-7]{6}$/m,
  );
  writeSync(fds[0]!, "written through it");
  expect(readFileSync(file, "utf8")).toBe("written through it");
  closeSync(fds[0]!);
  peer.say("end");
  await peer.ended();
  expect(receiveWithDescriptors(fd, 100)).toEqual({ bytes: new Uint8Array(), fds: [] });
  socket.destroy();
  server.close();
});

test("receiveWithDescriptors() leaves none open when there are too many in one message", async () => {
  using dir = tempDir();
  const path = join(dir.path, "s");
  const server = await listen(path);
  const accepted = accept(server);
  await using peer = python(
    `${CONNECT}
socket.send_fds(s, [b"many"], [0] * 40)
print("sent"); sys.stdin.readline()`,
    path,
  );
  const socket = await accepted;
  await peer.line();
  const before = openFds();
  expect(() => receiveWithDescriptors(fdOf(socket), 100)).toThrow("too many descriptors");
  expect(openedSince(before)).toEqual([]);
  socket.destroy();
  server.close();
});

test("sendWithDescriptor() and receiveWithDescriptors() pass a descriptor between two of these processes", async () => {
  using dir = tempDir();
  const path = join(dir.path, "s");
  const server = await listen(path);
  const accepted = accept(server);
  const module = JSON.stringify(import.meta.resolve("../../src/sys/unix_socket.ts"));
  await using client = child([
    process.execPath,
    "-e",
    `import { connect } from "node:net";
     import { fstatSync } from "node:fs";
     import { receiveWithDescriptors } from ${module};
     const socket = connect(${JSON.stringify(path)}).pause();
     socket.on("connect", () => {
       const look = setInterval(() => {
         const got = receiveWithDescriptors(socket._handle.fd, 4096);
         if (!got) return;
         clearInterval(look);
         console.log(Buffer.from(got.bytes).toString(), got.fds.map((fd) => fstatSync(fd).ino).join());
         socket.on("data", (data) => console.log("then " + data)).resume();
       }, 1);
     });`,
  ]);
  const socket = await accepted;
  const fd = openSync(import.meta.path, "r");
  sendWithDescriptor(fdOf(socket), Buffer.from("first"), fd);
  expect(await client.line()).toBe(`first ${fstatSync(fd).ino}`);
  socket.write("rest");
  expect(await client.line()).toBe("then rest");
  closeSync(fd);
  await client.kill();
  socket.destroy();
  server.close();
});

const RECEIVER = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1].replace("@", "\\0")); print("bound")
if len(sys.argv) == 2: print(s.recv(1000).decode())
sys.stdin.readline()`;

test("sendDatagram() reaches a path and an abstract address", async () => {
  using dir = tempDir();
  for (const address of [join(dir.path, "notify"), `@zit-agent-test-${process.pid}`]) {
    await using receiver = python(RECEIVER, address);
    await receiver.line();
    const before = openFds();
    expect(sendDatagram(address, Buffer.from("READY=1"))).toBe(true);
    expect(await receiver.line()).toBe("READY=1");
    expect(openedSince(before)).toEqual([]);
  }
});

test("sendDatagram() returns false when the receiver's queue is full", async () => {
  using dir = tempDir();
  const address = join(dir.path, "notify");
  await using receiver = python(RECEIVER, address, "and does not read");
  await receiver.line();
  const before = openFds();
  let sent = 0;
  while (sendDatagram(address, Buffer.from("WATCHDOG=1"))) {
    if (++sent > 100_000) throw new Error("the queue has no end");
  }
  expect(sent).toBeGreaterThan(0);
  expect(openedSince(before)).toEqual([]);
});

test("sendDatagram() throws when nobody is there or the address is none", () => {
  using dir = tempDir();
  const before = openFds();
  const bytes = Buffer.from("READY=1");
  expect(() => sendDatagram(join(dir.path, "none"), bytes)).toThrow("(ENOENT)");
  for (const address of ["", "@", "relative", "vsock:2:1", "/" + "x".repeat(107)]) {
    expect(() => sendDatagram(address, bytes)).toThrow("(EINVAL)");
  }
  expect(() => sendDatagram("/" + "x".repeat(106), bytes)).toThrow("(ENOENT)");
  expect(openedSince(before)).toEqual([]);
});
