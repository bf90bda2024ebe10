import { expect, test } from "bun:test";
import { connect, createServer, type Socket } from "node:net";
import { fstatSync } from "node:fs";
import { join } from "node:path";
import { peerInodeOf, unixSocketInodes } from "../../src/sys/socket_peer.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

/** Two ends of a connection. */
async function connected(path: string): Promise<{ ours: Socket; theirs: Socket }> {
  const server = createServer();
  const accepted = new Promise<Socket>((resolve) => server.once("connection", resolve));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  // Half open: the end of the other side must not end this one.
  const theirs = connect({ path, allowHalfOpen: true });
  const ours = await accepted;
  server.close();
  return { ours, theirs };
}

function fdOf(socket: Socket): number {
  return (socket as Socket & { _handle: { fd: number } })._handle.fd;
}

test("peerInodeOf() names the other end, which unixSocketInodes() has for as long as it is open", async () => {
  using dir = tempDir();
  for (let i = 0; i < 20; i++) {
    const { ours, theirs } = await connected(join(dir.path, `${i}.sock`));
    const inode = peerInodeOf(fdOf(ours));
    expect(inode).toBe(fstatSync(fdOf(theirs)).ino);
    expect(peerInodeOf(fdOf(theirs))).toBe(fstatSync(fdOf(ours)).ino);
    // The server's end goes first, as when an agent is killed.
    ours.destroy();
    await new Promise((resolve) => ours.once("close", resolve));
    expect(unixSocketInodes().has(inode)).toBe(true);
    theirs.destroy();
    await until("nobody has it any more", () => !unixSocketInodes().has(inode));
  }
});

test("peerInodeOf() is 0 for what is no connected Unix socket", () => {
  expect(peerInodeOf(0)).toBe(0);
  expect(peerInodeOf(-1)).toBe(0);
});
