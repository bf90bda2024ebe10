/**
 * The older program as a process: `bun older_program.ts URL NODE TTL_MS BUCKET` takes a line `want
 * STORE` or `release STORE`, and tells what becomes of it: `acquired STORE REVISION`, `granted STORE`,
 * `lost STORE`, `foreign STORE NODE`, `released STORE`.
 * @module
 */
import { connect } from "@nats-io/transport-node";
import { createInterface } from "node:readline";
import { OlderProgram } from "../support/older_program.ts";

const [url, node, ttlMs, bucket] = process.argv.slice(2);
const nc = await connect({ servers: url });
const program = await OlderProgram.open(nc, { node, ttlMs: Number(ttlMs), bucket }, {
  acquired: (store, { revision }) => console.log(`acquired ${store} ${revision}`),
  granted: (store) => console.log(`granted ${store}`),
  lost: (store) => console.log(`lost ${store}`),
  foreign: (store, holder) => console.log(`foreign ${store} ${holder}`),
  released: (store) => console.log(`released ${store}`),
});
createInterface({ input: process.stdin }).on("line", (line) => {
  const [verb, store] = line.split(" ");
  if (verb === "want") program.want(store);
  else void program.release(store);
});
console.log("ready");
await program.run();
