/**
 * A program that serves a few methods on the path given as its first argument, until its standard input ends:
 * prints `listening`, or why it cannot, and how it would exit. Further arguments: `umask=OCTAL`,
 * `descriptors=N` (the limit of open files it believes in). Takes the socket as systemd passes it.
 * @module
 */
import { takeActivationFd } from "../../../src/socket/activation.ts";
import { SocketError } from "../../../src/socket/path_checks.ts";
import { SocketServer } from "../../../src/socket/server.ts";
import { openOptions } from "./server.ts";

const [path, ...options] = process.argv.slice(2);
for (const option of options) {
  if (option.startsWith("umask=")) process.umask(parseInt(option.slice(6), 8));
}
const descriptors = options.find((option) => option.startsWith("descriptors="));
const server = new SocketServer({
  ...openOptions({
    held: (params, _connection, reply) => reply.ok({ held: params.store === "held" }),
    // Never answered: its caller is to go away.
    guard: () => {},
    release: (_params, _connection, reply) => void setImmediate(() => reply.ok({})),
  }),
  ...(descriptors && { descriptors: Number(descriptors.slice(12)) }),
  onError: (error) => console.error(error),
});
try {
  const fd = takeActivationFd(process.env, process.pid);
  if (fd !== null) await server.listenOn(fd);
  else await server.listen(path);
  console.log("listening");
  for await (const _ of process.stdin);
  await server.stop();
} catch (error) {
  if (!(error instanceof SocketError)) throw error;
  console.log(JSON.stringify({ message: error.message, exit: error.exit, pid: error.pid }));
  process.exit(error.exit);
}
