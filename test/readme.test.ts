/** The README's tour, pasted as it stands. */
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { tempDir } from "./support/temp_dir.ts";

const README = new URL("../README.md", import.meta.url).pathname;

test("README: the tour works as it is pasted", async () => {
  const text = readFileSync(README, "utf8");
  const blocks = [...text.matchAll(/^```sh\n(.*?)^```/gms)].map((match) => match[1]);
  expect(blocks.length).toBeGreaterThan(6);
  using dir = tempDir();
  const script = `${dir.path}/tour.sh`;
  writeFileSync(script, blocks.join("\n"));
  // Job control, as in the interactive shell that people paste it into.
  const child = Bun.spawn(["bash", "-m", script], {
    cwd: new URL("..", import.meta.url).pathname,
    env: {
      PATH: process.env.PATH!,
      HOME: process.env.HOME!,
      NATS_SERVER: process.env.NATS_SERVER!,
    },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  const said = out + err;
  expect(out).toMatch(/^[0-9a-f]+ guarded$/m); // git's log
  expect(out).toMatch(/^New_Version: /m); // fossil's commit
  expect(out.match(/^exit 75$/gm)?.length).toBe(2); // the second writer, the second node
  expect(out).toContain("my turn");
  expect(said).toContain("node alpha (http://alpha.example) holds it");
  expect(out).toContain('"state":"other","node":"alpha","address":"http://alpha.example"');
  expect(out).toContain("beta writes now");
  expect(out).toContain("alpha writes again");
}, 120_000);
