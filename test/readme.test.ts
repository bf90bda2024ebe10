/** The README's tour, pasted as it stands. */
import { afterAll, expect, test } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tempDir } from "./support/temp_dir.ts";
import { until } from "./support/wait.ts";

const README = new URL("../README.md", import.meta.url).pathname;

const dir = tempDir();

/** What the tour left running because something in it went wrong: all of it inherited our TMPDIR. */
function leftovers(): number[] {
  return readdirSync("/proc").map(Number).filter((pid) => {
    try {
      const environment = readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
      return environment.includes(`TMPDIR=${dir.path}`);
    } catch {
      return false; // no process, or not ours
    }
  });
}

// Here, because a test that takes too long does not come to its own end.
afterAll(() => {
  for (const pid of leftovers()) process.kill(pid, "SIGKILL");
  dir[Symbol.dispose]();
});

test("README: the tour works as it is pasted", async () => {
  const text = readFileSync(README, "utf8");
  const blocks = [...text.matchAll(/^```sh\n(.*?)^```/gms)].map((match) => match[1]);
  expect(blocks.length).toBeGreaterThan(6);
  const script = `${dir.path}/tour.sh`;
  writeFileSync(script, blocks.join("\n"));
  // Job control, as in the interactive shell that people paste it into.
  const child = Bun.spawn(["bash", "-m", script], {
    cwd: new URL("..", import.meta.url).pathname,
    env: {
      PATH: process.env.PATH!,
      HOME: process.env.HOME!,
      NATS_SERVER: process.env.NATS_SERVER!,
      TMPDIR: dir.path,
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
  await until("the tour has cleaned up", () => leftovers().length === 0);
}, 120_000);
