/** Who may use an agent, and who may step it down, with processes of other users. */
import { expect, test } from "bun:test";
import { chmodSync, copyFileSync } from "node:fs";
import { join } from "node:path";
import { AGENT, RealAgent } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";

const GROUP = 4242;

/** Users as setpriv makes them; the agent's socket is open to its group. */
const USERS = {
  root: [],
  member: ["--reuid", "4711", "--regid", "4711", "--groups", String(GROUP)],
  primary: ["--reuid", "4712", "--regid", String(GROUP), "--clear-groups"],
  outsider: ["--reuid", "4713", "--regid", "4713", "--clear-groups"],
} as const;
type User = keyof typeof USERS;

/** A copy of the program that everybody may run, wherever the checkout is. */
function programForAll(dir: { readonly path: string }): string {
  chmodSync(dir.path, 0o755);
  const program = join(dir.path, "agent");
  copyFileSync(AGENT, program);
  chmodSync(program, 0o755);
  return program;
}

function runAs(user: User, program: string, agent: RealAgent, args: readonly string[]) {
  const { exitCode, stdout, stderr } = Bun.spawnSync({
    cmd: ["setpriv", ...USERS[user], program, ...args],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    cwd: "/",
  });
  return { status: exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
}

const YES = 0;
const FORBIDDEN = 77;
/** The file's mode keeps them out: to them there is no agent. */
const NOT_REACHED = 69;

test.skipIf(process.getuid!() !== 0).each<
  [string, string[], Record<User, number>, Record<User, number>]
>([
  [
    "with no flags: whoever the file's mode lets in; root steps down",
    [],
    { root: YES, member: YES, primary: YES, outsider: NOT_REACHED },
    { root: YES, member: FORBIDDEN, primary: FORBIDDEN, outsider: NOT_REACHED },
  ],
  [
    "with --allow-uid: only those users, root no more",
    ["--allow-uid", "4711"],
    { root: FORBIDDEN, member: YES, primary: FORBIDDEN, outsider: NOT_REACHED },
    { root: FORBIDDEN, member: FORBIDDEN, primary: FORBIDDEN, outsider: NOT_REACHED },
  ],
  [
    "with --allow-gid: those whose primary or further group it is",
    ["--allow-gid", String(GROUP)],
    { root: FORBIDDEN, member: YES, primary: YES, outsider: NOT_REACHED },
    { root: FORBIDDEN, member: FORBIDDEN, primary: FORBIDDEN, outsider: NOT_REACHED },
  ],
  [
    "with both, repeated, and --admin-uid, which replaces its default",
    ["--allow-uid", "0", "--allow-uid", "4711", "--allow-gid", "9", "--admin-uid", "4711"],
    { root: YES, member: YES, primary: FORBIDDEN, outsider: NOT_REACHED },
    { root: FORBIDDEN, member: YES, primary: FORBIDDEN, outsider: NOT_REACHED },
  ],
])("an agent %s", async (_, flags, guards, stepdowns) => {
  using dir = tempDir();
  const program = programForAll(dir);
  await using agent = await RealAgent.start({
    node: "alone",
    flags,
    wrap: ["setpriv", "--regid", String(GROUP), "--clear-groups"],
  });
  chmodSync(agent.dir, 0o755);
  agent.makeStore("one");
  for (const user of Object.keys(USERS) as User[]) {
    const guard = runAs(user, program, agent, ["guard", "one", "--", "id", "-u"]);
    expect([user, guard.status, guard.stderr]).toEqual([user, guards[user], expect.any(String)]);
    // The command runs as whoever asked, with the lock that it could not have opened itself.
    const uid = guards[user] === YES ? `${uidOf(user)}\n` : "";
    expect(guard.stdout).toBe(uid);
    const stepdown = runAs(user, program, agent, ["stepdown", "--all", "--for", "1ms"]);
    expect([user, "steps down", stepdown.status]).toEqual([user, "steps down", stepdowns[user]]);
    if (stepdown.status === FORBIDDEN) expect(stepdown.stderr).toContain(`User ${uidOf(user)} `);
    if (stepdown.status === NOT_REACHED) expect(stepdown.stderr).toContain("no permission");
  }
});

test.skipIf(process.getuid!() !== 0)(
  "a guard of a user who may not read the lock file runs its command to the end",
  async () => {
    using dir = tempDir();
    const program = programForAll(dir);
    await using agent = await RealAgent.start({ node: "alone" });
    chmodSync(agent.dir, 0o755);
    chmodSync(agent.socket, 0o666);
    agent.makeStore("one");
    // Once taken for a command that could not be started, while it ran on with nobody to end it.
    const args = ["guard", "one", "--", "sh", "-c", "sleep 0.2; id -u; exit 3"];
    const { status, stdout, stderr } = runAs("outsider", program, agent, args);
    expect({ status, stdout }).toEqual({ status: 3, stdout: "4713\n" });
    expect(stderr).not.toContain("Cannot run");
  },
);

function uidOf(user: User): string {
  return USERS[user][1] ?? "0";
}
