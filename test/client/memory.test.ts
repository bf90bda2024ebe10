/** What a client keeps of guards that have ended: nothing. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { RealAgent } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";

const MODULE = new URL("../../src/client/mod.ts", import.meta.url).pathname;
/** A connection that keeps a kilobyte of each guard would have 20 MB after so many. */
const GUARDS = 20_000;
const MAX_GROWTH_BYTES = 4_000_000;

let host: RealAgent;
beforeAll(async () => void (host = await RealAgent.start({ node: "memory" })));
afterAll(() => host[Symbol.asyncDispose]());

test(
  "20,000 guards on one connection, with a signal that outlives them, leave the heap as it was",
  async () => {
    for (let i = 0; i < 16; i++) host.makeStore(`s${i}`);
    const script = `
    import { heapStats } from "bun:jsc";
    import { connect } from ${JSON.stringify(MODULE)};
    const agent = await connect({ socket: ${JSON.stringify(host.socket)} });
    const { signal } = new AbortController();
    let left = 0;
    async function guardAll(count) {
      left = count;
      await Promise.all(Array.from({ length: 16 }, async (_, i) => {
        while (left-- > 0) {
          await agent.guard("s" + i, { signal }, (token) => token.verify({ signal }));
        }
      }));
      for (let i = 0; i < 3; i++) {
        await Bun.sleep(0);
        Bun.gc(true);
      }
      return heapStats().heapSize + heapStats().extraMemorySize;
    }
    await guardAll(1_000); // what is compiled and cached stays
    const before = await guardAll(1_000);
    const after = await guardAll(${GUARDS});
    console.log(after - before);
    await agent.close();
  `;
    const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
    reap(child.pid);
    const grown = Number(await new Response(child.stdout).text());
    expect(await child.exited).toBe(0);
    console.log(`${GUARDS} guards: the heap grew by ${grown} bytes`);
    expect(grown).toBeLessThan(MAX_GROWTH_BYTES);
  },
  300_000,
);
