/**
 * A front end that stands still between its commit-point check and its write:
 * `bun late_writer.ts SOCKET STORE LOG ID BODY`. Prints "verified", waits for a line of input and
 * does nothing else meanwhile, as if it were frozen there; then prints what came of the write.
 */
import { readSync } from "node:fs";
import { connect } from "../../../src/client/mod.ts";
import { append } from "../forge/log.ts";

const [socket, store, log, id, body] = process.argv.slice(2);
const agent = await connect({ socket });
let outcome: string;
try {
  await agent.guard(store, {}, async (token) => {
    const at = await append(log, { id, body: Buffer.from(body) }, {
      epoch: token.epoch!,
      async verify() {
        await token.verify();
        console.log("verified");
        readSync(0, Buffer.alloc(100));
      },
    });
    // What it found on the disk, whatever the guard says of the lease.
    console.log(`at ${at}`);
  });
  outcome = "done";
} catch (error) {
  outcome = (error as Error).name;
}
console.log(outcome);
process.exit();
