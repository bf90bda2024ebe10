/**
 * Appends big entries to a log until it is killed: `bun endless_writer.ts PATH PREFIX SIZE`. Prints
 * each one's id when it is in the log.
 */
import { append } from "../forge/log.ts";

const [path, prefix, size] = process.argv.slice(2);
for (let i = 0;; i++) {
  const id = `${prefix}-${i}`;
  await append(path, { id, body: Buffer.alloc(Number(size), id) }, {
    epoch: 1,
    verify: () => Promise.resolve(),
  });
  console.log(id);
}
