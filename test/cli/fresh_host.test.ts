/** A host on which nobody has made anything yet, in a mount namespace with empty /run and /var/lib. */
import { describe, expect, test } from "bun:test";
import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AGENT, finish } from "../support/agent_under_test.ts";
import { tempDir } from "../support/temp_dir.ts";

const MANUAL = readFileSync(join(import.meta.dir, "../../docs/operations.md"), "utf8");
/** What the manual has people paste for an agent without a coordinator: as root, and as others. */
const [AS_ROOT, AS_OTHER] = [...MANUAL.matchAll(/^```bash\n(.*?)^```/gms)].map((match) =>
  match[1]!
);

const USER = 4_711;

interface Scene {
  /** Run by bash as root in the fresh place, before `script`. */
  readonly before?: string;
  readonly script: string;
  readonly user?: number;
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a script where `agent` is found and nothing else was prepared; what it starts ends with it. */
async function onFreshHost({ before = "", script, user = 0, env = {} }: Scene) {
  using dir = tempDir();
  chmodSync(dir.path, 0o755);
  copyFileSync(AGENT, join(dir.path, "agent"));
  chmodSync(join(dir.path, "agent"), 0o755);
  mkdirSync(join(dir.path, "home"));
  chmodSync(join(dir.path, "home"), 0o777);
  // As an interactive shell has it when somebody logs out: what it started is told to end.
  writeFileSync(
    join(dir.path, "script"),
    `trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\numask 077\n${script}`,
  );
  const become = user === 0 ? "" : `setpriv --reuid ${user} --regid ${user} --clear-groups`;
  const setUp =
    `set -e; for each in /run /var/lib; do mount -t tmpfs none $each; done\n${before}\n` +
    `exec ${become} bash "$0"`;
  const result = await finish(Bun.spawn({
    cmd: [
      // The manual's script waits for as long as its agent does not come up.
      ...["timeout", "--signal=KILL", "50"],
      ...["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
      ...["bash", "-c", setUp, join(dir.path, "script")],
    ],
    env: { PATH: `${dir.path}:${process.env.PATH!}`, HOME: join(dir.path, "home"), ...env },
    cwd: join(dir.path, "home"),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  }));
  return { ...result, home: join(dir.path, "home") };
}

const RUNTIME_DIR = { XDG_RUNTIME_DIR: `/run/user/${USER}` };
const LOGGED_IN = `mkdir -p /run/user && install -d -o ${USER} -m 700 /run/user/${USER}`;
const START = 'agent run --standalone "a single host" --state-dir "$HOME/state"';

describe.skipIf(process.getuid!() !== 0)("agent run on a fresh host", () => {
  test("guards a store as root after what docs/operations.md has one make", async () => {
    const { exit, stdout, stderr } = await onFreshHost({
      script: `${AS_ROOT}\nstat -c '%a %u' /run/zit-agent`,
    });
    expect({ exit, stderr: exit === 0 ? "" : stderr }).toEqual({ exit: 0, stderr: "" });
    expect(stdout).toContain("guarded\n");
    expect(stdout).toEndWith("750 0\n");
  });

  test("guards a store as a user after what docs/operations.md has one make", async () => {
    const { exit, stdout, stderr } = await onFreshHost({
      before: LOGGED_IN,
      script: `${AS_OTHER}\nstat -c '%a %u' "$XDG_RUNTIME_DIR/zit-agent"`,
      user: USER,
      env: RUNTIME_DIR,
    });
    expect({ exit, stderr: exit === 0 ? "" : stderr }).toEqual({ exit: 0, stderr: "" });
    expect(stdout).toContain("guarded\n");
    expect(stdout).toEndWith(`750 ${USER}\n`);
  });

  test("makes no directory for a socket that was named", async () => {
    const { exit, stderr } = await onFreshHost({
      script:
        `${START} --socket /run/zit-agent/agent.sock || { s=$?; ls -d /run/zit* >&2; exit $s; }`,
    });
    expect(exit).toBe(73);
    expect(stderr).toContain("Cannot listen in /run/zit-agent: there is no such directory");
    expect(stderr).not.toMatch(/^\/run\/zit-agent$/m);
  });

  test.each<[string, string, string]>([
    [
      "the directory above it is missing",
      "",
      `Cannot listen in /run/user/${USER}: there is no such directory; make it`,
    ],
    [
      "the directory above it may not be written to",
      `install -d -m 755 /run/user/${USER}`,
      `Cannot listen in /run/user/${USER}/zit-agent: it cannot be made: permission denied (EACCES)`,
    ],
    [
      "the directory above it is another user's",
      `install -d -o 4712 -m 777 /run/user/${USER}`,
      `Cannot listen in /run/user/${USER}: it belongs to user 4712`,
    ],
    [
      "the directory above it is a link of another user",
      `install -d -o ${USER} /run/mine; ln -s /run/mine /run/user/${USER}; ` +
      `chown -h 4712 /run/user/${USER}`,
      `Cannot listen in /run/user/${USER}: it is a symbolic link of user 4712`,
    ],
    [
      "another user has put a link in its place",
      `install -d -m 1777 /run/user/${USER}; install -d -o ${USER} /run/mine; ` +
      `ln -s /run/mine /run/user/${USER}/zit-agent; chown -h 4712 /run/user/${USER}/zit-agent`,
      `Cannot listen in /run/user/${USER}/zit-agent: it is a symbolic link of user 4712`,
    ],
    [
      "a link that leads nowhere is in its place",
      `${LOGGED_IN}; ln -s /run/none /run/user/${USER}/zit-agent; ` +
      `chown -h ${USER} /run/user/${USER}/zit-agent`,
      `Cannot listen in /run/user/${USER}/zit-agent: there is no such directory`,
    ],
  ])("ends with 73 and says why when %s", async (_, before, why) => {
    const { exit, stderr } = await onFreshHost({
      before: `mkdir -p /run/user; ${before}`,
      script: `${START} || { s=$?; ls -d /run/none /run/mine/* >&2; exit $s; }`,
      user: USER,
      env: RUNTIME_DIR,
    });
    expect(exit).toBe(73);
    expect(stderr).toContain(why);
    expect(stderr).not.toContain("/run/mine/z");
    expect(stderr).not.toMatch(/^\/run\/none$/m);
  });
});
