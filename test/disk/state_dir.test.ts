import { expect, test } from "bun:test";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { StateDir, StateDirError, type StateDirOptions } from "../../src/disk/state_dir.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { bootId, processStartTime } from "../../src/sys/proc.ts";
import { child, python } from "../support/child.ts";
import { openedSince, openFds } from "../support/fds.ts";
import { noSmallDisk, smallDisk } from "../support/small_disk.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const MODULE = JSON.stringify(import.meta.resolve("../../src/disk/state_dir.ts"));

function open(path: string, options: Partial<StateDirOptions> = {}): StateDir {
  return StateDir.open(path, { node: "node-a", incarnation: "now", ...options });
}

/** What an earlier agent did in the directory. */
function earlier(
  path: string,
  what: (state: StateDir) => void,
  options: Partial<StateDirOptions> = {},
): void {
  const state = open(path, { incarnation: "earlier", ...options });
  what(state);
  state.close();
}

function errorOf(call: () => unknown): StateDirError {
  try {
    call();
  } catch (error) {
    expect(error).toBeInstanceOf(StateDirError);
    return error as StateDirError;
  }
  throw new Error("did not throw");
}

/** An agent of another process that has the directory open. */
async function agent(path: string, code = "") {
  const other = child([
    process.execPath,
    "-e",
    `import { StateDir } from ${MODULE};
     const state = StateDir.open(${JSON.stringify(path)}, { node: "node-b", incarnation: "other" });
     ${code}
     console.log("open"); setInterval(() => {}, 1_000);`,
  ]);
  await other.line();
  return other;
}

test("open() makes the directory with mode 0750 and its parents when it is missing, whatever the umask", () => {
  using dir = tempDir();
  for (const umask of [0o000, 0o077]) {
    const path = join(dir.path, String(umask), "lib", "state");
    mkdirSync(join(dir.path, String(umask)));
    const before = process.umask(umask);
    try {
      open(path).close();
    } finally {
      process.umask(before);
    }
    expect(statSync(path).mode & 0o7777).toBe(0o750);
    expect(statSync(join(path, "incarnations")).mode & 0o027).toBe(0);
  }
});

test("open() takes a directory that is there as it is, also through a symlink", () => {
  using dir = tempDir();
  const [path, link] = [join(dir.path, "state"), join(dir.path, "link")];
  mkdirSync(path, { mode: 0o700 });
  symlinkSync(path, link);
  open(link).close();
  expect(statSync(path).mode & 0o7777).toBe(0o700);
  expect(readdirSync(path).sort()) //
    .toEqual(["buckets", "clusters", "graces", "grants", "incarnations", "lock", "strangers"]);
});

test("open() refuses a directory that another agent has, naming it, until that is dead", async () => {
  using dir = tempDir();
  await using other = await agent(dir.path);
  const before = openFds();
  const error = errorOf(() => open(dir.path));
  expect(error.exit).toBe(73);
  expect(error.pid).toBe(other.pid);
  expect(error.message).toBe(
    `Cannot use state directory ${dir.path}: another agent (pid ${other.pid}, node node-b) is ` +
      `using it; stop that agent, or give this one a directory of its own with --state-dir`,
  );
  expect(openedSince(before)).toEqual([]);
  await other.kill();
  const state = open(dir.path);
  expect(state.previousIncarnations).toEqual(new Set()); // that was another node
  // Also within one process there is one at a time.
  expect(errorOf(() => open(dir.path)).pid).toBe(process.pid);
  state.close();
});

test("open() refuses a directory that is locked by who does not say who it is", async () => {
  using dir = tempDir();
  await using other = child(["flock", join(dir.path, "lock"), "sh", "-c", "echo; read x"]);
  await other.line();
  const error = errorOf(() => open(dir.path));
  expect(error.pid).toBeNull();
  expect(error.message).toContain(": another agent is using it;");
});

test("open() leaves no lock with the children of the agent that was there", async () => {
  using dir = tempDir();
  await using other = await agent(
    dir.path,
    `const c = Bun.spawn(["sleep", "60"]); console.log(c.pid);`,
  );
  await other.line();
  await other.kill();
  open(dir.path).close();
});

test("open() says what is wrong when the path cannot be a state directory", async () => {
  using dir = tempDir();
  const before = openFds();
  writeFileSync(join(dir.path, "file"), "");
  for (
    const [path, reason] of [
      [join(dir.path, "file"), `${join(dir.path, "file", "lock")}: not a directory (ENOTDIR)`],
      [join(dir.path, "file", "state"), `${join(dir.path, "file")} is not a directory`],
      ["/proc/state", "no such file or directory (ENOENT)"],
    ]
  ) {
    const error = errorOf(() => open(path!));
    expect(error.exit).toBe(73);
    expect(error.message).toStartWith(`Cannot use state directory ${path}: ${reason}`);
    expect(error.message).toEndWith("or choose another with --state-dir");
  }
  for (const name of ["lock", "grants", "incarnations", "strangers", "graces"]) {
    const path = join(dir.path, `bad-${name}`);
    mkdirSync(join(path, name), { recursive: true });
    expect(errorOf(() => open(path)).message).toContain("illegal operation on a directory");
    const linked = join(dir.path, `linked-${name}`);
    mkdirSync(linked);
    symlinkSync(join(dir.path, "victim"), join(linked, name));
    expect(errorOf(() => open(linked)).message).toContain("(ELOOP)");
  }
  await child(["mkfifo", join(dir.path, "lock")]).ended();
  expect(errorOf(() => open(dir.path)).message).toContain("is not a regular file");
  expect(existsSync(join(dir.path, "victim"))).toBe(false);
  // Those to the child are closed a moment after it ended.
  await until("nothing is left open", () => openedSince(before).length === 0);
});

test("open() refuses a directory in which everybody may write", () => {
  using dir = tempDir();
  const path = join(dir.path, "state");
  mkdirSync(path);
  chmodSync(path, 0o1777);
  const { message, exit } = errorOf(() => open(path));
  expect(exit).toBe(73);
  expect(message).toBe(
    `Cannot use state directory ${path}: everybody may write to it, and could change what this ` +
      `agent has to know; chmod o-w ${path}`,
  );
  chmodSync(path, 0o775);
  open(path).close();
});

test.skipIf(process.getuid!() !== 0)("open() refuses a directory of another user's", () => {
  using dir = tempDir();
  const path = join(dir.path, "state");
  mkdirSync(path);
  chownSync(path, 4321, 0);
  expect(errorOf(() => open(path)).message).toContain(
    "it belongs to uid 4321, who could change what this agent has to know; it must belong to root " +
      "or to uid 0: chown it",
  );
});

test.skipIf(process.getuid!() !== 0)(
  "open() names the owner when the directory cannot be used for its mode",
  async () => {
    using dir = tempDir();
    chmodSync(dir.path, 0o755);
    const path = join(dir.path, "state");
    mkdirSync(path, { mode: 0o750 });
    chownSync(path, 0, 4321);
    // The runtime and the module may lie where another user cannot read: they are loaded before.
    await using other = child([
      process.execPath,
      "-e",
      `import { StateDir } from ${MODULE};
     process.setgid(1234); process.setuid(1234);
     try { StateDir.open(${JSON.stringify(path)}, { node: "a", incarnation: "i" }); }
     catch (error) { console.log(error.message); }`,
    ]);
    expect(await other.line()).toBe(
      `Cannot use state directory ${path}: ${path}/lock: permission denied (EACCES) (${path} ` +
        `belongs to uid 0 with mode 0750, this agent runs as uid 1234); make it writable for ` +
        `the agent, or choose another with --state-dir`,
    );
  },
);

test("previousIncarnations has those of this node that ran here, not this one", () => {
  using dir = tempDir();
  earlier(dir.path, () => {}, { incarnation: "first" });
  earlier(dir.path, (state) => expect([...state.previousIncarnations]).toEqual(["first"]), {
    incarnation: "second",
  });
  const state = open(dir.path);
  expect([...state.previousIncarnations]).toEqual(["first", "second"]);
  state.close();
});

test("previousIncarnations leaves out another node's, and another machine's whose disk was copied", () => {
  using dir = tempDir();
  earlier(dir.path, () => {}, { incarnation: "renamed", node: "node-z" });
  earlier(dir.path, () => {}, { incarnation: "copied", machine: "elsewhere" });
  const state = open(dir.path);
  expect([...state.previousIncarnations]).toEqual([]);
  state.close();
});

test("previousIncarnations is empty in a copy, whose lock proves nobody dead, and after a reboot", () => {
  using dir = tempDir();
  const [original, copy] = [join(dir.path, "original"), join(dir.path, "copy")];
  earlier(original, () => {});
  cpSync(original, copy, { recursive: true, preserveTimestamps: true });
  const copied = open(copy);
  expect([...copied.previousIncarnations]).toEqual([]);
  copied.close();
  const rebooted = open(original, { boot: "another boot" });
  expect([...rebooted.previousIncarnations]).toEqual([]);
  rebooted.close();
  const same = open(original);
  expect([...same.previousIncarnations]).toEqual(["earlier"]);
  same.close();
});

test("previousIncarnations has the last 64", () => {
  using dir = tempDir();
  for (let i = 0; i < 70; i++) earlier(dir.path, () => {}, { incarnation: `i${i}` });
  const state = open(dir.path);
  expect([...state.previousIncarnations]).toEqual(
    Array.from({ length: 64 }, (_, i) => `i${i + 6}`),
  );
  state.close();
});

test("previousIncarnations is empty for good when the journal was damaged: nobody knows who still writes", () => {
  for (const name of ["grants", "graces", "incarnations"]) {
    using dir = tempDir();
    earlier(dir.path, (state) => {
      state.rememberGrace("s", bootTimeMs() + 60_000);
      state.journal.grant({ id: "g", store: "s", epoch: 1, pid: process.pid, startTime: null });
    });
    appendFileSync(join(dir.path, name), "not a line of ours\n");
    earlier(dir.path, (state) => {
      expect(state.damage).toHaveLength(1);
      expect(state.damage[0]).toMatch(new RegExp(`/${name}:\\d+: cannot be read$`));
      expect([...state.previousIncarnations]).toEqual([]);
    }, { incarnation: "later" });
    const state = open(dir.path);
    expect(state.damage).toEqual([]);
    expect([...state.previousIncarnations]).toEqual(["later"]);
    state.close();
  }
});

test("strangers survive a restart until they are forgotten", () => {
  using dir = tempDir();
  earlier(dir.path, (state) => {
    for (const store of ["a", "team/b", "a"]) expect(state.rememberStranger(store)).toBeNull();
    expect(state.strangers).toEqual(new Set(["a", "team/b"]));
  });
  const lines = readFileSync(join(dir.path, "strangers"), "utf8").trim().split("\n");
  expect(lines).toHaveLength(3); // the boot, and one for each
  earlier(dir.path, (state) => {
    expect(state.strangers).toEqual(new Set(["a", "team/b"]));
    expect(state.forgetStranger("a")).toBeNull();
    expect(state.forgetStranger("never")).toBeNull();
  });
  const state = open(dir.path);
  expect(state.strangers).toEqual(new Set(["team/b"]));
  state.close();
});

test("wasClustered() is true of a bucket for good, also when the machine was started again", () => {
  using dir = tempDir();
  earlier(dir.path, (state) => {
    expect(state.wasClustered("leases")).toBe(false);
    expect(state.rememberClustered("leases")).toBeNull();
    expect(state.rememberClustered("leases")).toBeNull();
    expect(state.wasClustered("leases")).toBe(true);
  });
  const state = open(dir.path, { boot: "another" });
  expect([state.wasClustered("leases"), state.wasClustered("others")]).toEqual([true, false]);
  state.close();
});

test("wasClustered() is true of every bucket once the file was damaged", () => {
  using dir = tempDir();
  earlier(dir.path, (state) => void state.rememberClustered("leases"));
  writeFileSync(join(dir.path, "clusters"), "garbage\n");
  earlier(dir.path, (state) => {
    expect(state.damage).toHaveLength(1);
    expect([state.wasClustered("leases"), state.wasClustered("others")]).toEqual([true, true]);
  });
  // The next run finds no damage any more, and must know all the same.
  const state = open(dir.path);
  expect([state.damage.length, state.wasClustered("leases")]).toEqual([0, true]);
  state.close();
});

test("madeOf() tells when a bucket was made, and null of one that is not known", () => {
  using dir = tempDir();
  earlier(dir.path, (state) => {
    expect(state.madeOf("leases")).toBeNull();
    expect(state.rememberMade("leases", "then")).toBeNull();
  });
  earlier(dir.path, (state) => {
    expect([state.madeOf("leases"), state.madeOf("others")]).toEqual(["then", null]);
  });
});

test.each(["incarnations", "grants", "strangers", "graces", "clusters", "buckets"])(
  "madeOf() is another than that of any bucket once %s was damaged, until it is remembered anew",
  (name) => {
    using dir = tempDir();
    earlier(dir.path, (state) => void state.rememberMade("leases", "then"));
    writeFileSync(join(dir.path, name), "garbage\n");
    earlier(dir.path, (state) => {
      expect(state.damage).toHaveLength(1);
      expect([state.madeOf("leases"), state.madeOf("others")]).toEqual(["", ""]);
    });
    // The next run finds no damage any more, and must know all the same.
    earlier(dir.path, (state) => {
      expect([state.damage.length, state.madeOf("leases")]).toEqual([0, ""]);
      expect(state.rememberMade("leases", "now")).toBeNull();
    });
    earlier(dir.path, (state) => {
      expect([state.madeOf("leases"), state.madeOf("others")]).toEqual(["now", ""]);
    });
  },
);

test("graces() has those that are not over, whole ones when the machine was started again", () => {
  using dir = tempDir();
  const untilMs = bootTimeMs() + 60_000;
  earlier(dir.path, (state) => {
    expect(state.rememberGrace("a", untilMs)).toBeNull();
    expect(state.rememberGrace("a", untilMs)).toBeNull();
    state.rememberGrace("b", untilMs);
    state.rememberGrace("b", untilMs + 0.5);
    state.rememberGrace("over", bootTimeMs() - 1);
    state.rememberGrace("forgotten", untilMs);
    state.forgetGrace("forgotten");
    expect(() => state.rememberGrace("c", Infinity)).toThrow(RangeError);
  });
  const expected = new Map([["a", untilMs], ["b", untilMs + 0.5]]);
  earlier(dir.path, (state) => expect(state.graces()).toEqual(expected));
  earlier(dir.path, (state) => {
    expect(state.graces()).toEqual(new Map([["a", Infinity], ["b", Infinity]]));
    state.rememberGrace("a", untilMs);
    expect(state.graces()).toEqual(new Map([["b", Infinity], ["a", untilMs]]));
  }, { boot: "another" });
  earlier(dir.path, (state) => {
    expect(state.graces()).toEqual(new Map([["b", Infinity], ["a", untilMs]]));
  }, { boot: "another" });
});

/** So that the process is not killed before the turn of its event loop is over. */
const WRITTEN = `state.journal.secure("any");`;

test("journal has the grants of a killed agent whose clients live, by number and start time (sanlock#1)", async () => {
  using dir = tempDir();
  await using client = child(["sleep", "60"]);
  await using gone = child(["sleep", "60"]);
  const startTime = processStartTime(client.pid)!;
  const grants = [
    { id: "lives", store: "a", epoch: 7, pid: client.pid, startTime },
    { id: "ended", store: "b", epoch: 7, pid: client.pid, startTime },
    { id: "gone", store: "c", epoch: 7, pid: gone.pid, startTime: processStartTime(gone.pid) },
    // The number of a process that ended before, now another's.
    { id: "reused", store: "d", epoch: 7, pid: client.pid, startTime: startTime - 1 },
    { id: "hidden", store: "e", epoch: 7, pid: 0, startTime: null },
    { id: "unread", store: "f", epoch: 7, pid: client.pid, startTime: null },
  ];
  const code = grants.map((grant) => `state.journal.grant(${JSON.stringify(grant)});`).join("\n");
  await using killed = await agent(dir.path, code + `state.journal.end("ended");${WRITTEN}`);
  await gone.kill();
  await killed.kill();
  const state = open(dir.path);
  const names = () => state.journal.survivors().map(({ id }) => id);
  expect(state.journal.survivors()[0]).toEqual(grants[0]!);
  expect(names()).toEqual(["lives", "hidden", "unread"]);
  // This agent's own are no survivors, to it.
  state.journal.grant({ id: "own", store: "a", epoch: 8, pid: client.pid, startTime });
  expect(names()).toEqual(["lives", "hidden", "unread"]);
  await client.kill();
  expect(names()).toEqual(["hidden"]);
  state.journal.end("hidden");
  expect(names()).toEqual([]);
  state.close();
});

test("journal has the grants of a client that is gone, while somebody has its end of the connection", async () => {
  using dir = tempDir();
  await using gone = child(["sleep", "60"]);
  await using heir = python(`
import os, socket
ends = socket.socketpair(); print(os.fstat(ends[0].fileno()).st_ino); input()`);
  const socket = Number(await heir.line());
  const { pid } = gone;
  const startTime = processStartTime(pid);
  earlier(dir.path, (state) => {
    state.journal.grant({ id: "g", store: "s", epoch: 7, pid, startTime, socket });
    state.journal.grant({ id: "h", store: "s", epoch: 7, pid, startTime });
  });
  await gone.kill();
  const state = open(dir.path);
  const names = () => state.journal.survivors().map(({ id }) => id);
  expect(names()).toEqual(["g"]);
  await heir.kill();
  expect(names()).toEqual([]);
  state.close();
});

test("journal counts a client as gone when it has ended, though nobody has reaped it", async () => {
  using dir = tempDir();
  await using parent = child([
    "python3",
    "-u",
    "-c",
    `
import os, sys
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(r, 1); os._exit(0)
print(pid); sys.stdin.readline()
os.write(w, b"x"); os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print("ended"); sys.stdin.readline()`,
  ]);
  const pid = Number(await parent.line());
  const startTime = processStartTime(pid);
  earlier(
    dir.path,
    (state) => state.journal.grant({ id: "g", store: "s", epoch: 1, pid, startTime }),
  );
  const state = open(dir.path);
  expect(state.journal.survivors()).toHaveLength(1);
  parent.say("go");
  await parent.line();
  expect(state.journal.survivors()).toEqual([]);
  state.close();
});

test("journal knows until when what gone clients left running may write (SPEC 2.8)", async () => {
  using dir = tempDir();
  await using client = child(["sleep", "60"]);
  const startTime = processStartTime(client.pid)!;
  const leaving = { epoch: 7, pid: client.pid, startTime, lingerMs: 60_000 };
  const untilMs = Math.ceil(bootTimeMs() + 90_000);
  const code = `
    const leaving = ${JSON.stringify(leaving)};
    for (const id of ["out", "told", "kept"]) state.journal.grant({ ...leaving, id, store: id });
    state.journal.grant({ ...leaving, id: "ended", store: "ended" });
    state.journal.grant({ ...leaving, id: "harmless", store: "harmless", lingerMs: 0 });
    state.journal.end("ended");
    state.journal.end("told", ${untilMs});${WRITTEN}`;
  await using killed = await agent(dir.path, code);
  await killed.kill();
  const deadAtMs = bootTimeMs();
  const first = open(dir.path);
  // A client that lives may still go and leave something running.
  expect(first.journal.lingerUntilMs("out")).toBeGreaterThanOrEqual(deadAtMs + 60_000);
  expect(first.journal.lingerUntilMs("told")).toBe(untilMs);
  expect(first.journal.lingerUntilMs("ended")).toBe(0);
  expect(first.journal.lingerUntilMs("harmless")).toBe(0);
  await client.kill();
  expect(first.journal.survivors()).toEqual([]);
  const left = first.journal.lingerUntilMs("out");
  first.close();
  // The next run counts from the first death after the grant, not from its own start.
  const second = open(dir.path);
  expect(second.journal.lingerUntilMs("out")).toBe(Math.ceil(left));
  expect(second.journal.lingerUntilMs("told")).toBe(untilMs);
  second.close();
});

test("unfinished tells in which stores earlier clients, or what they left, may still write", async () => {
  using dir = tempDir();
  const ours = { epoch: 7, pid: process.pid, startTime: processStartTime(process.pid) };
  const soonMs = bootTimeMs() + 50;
  earlier(dir.path, ({ journal }) => {
    for (const store of ["alive", "left", "locked", "free", "ended"]) {
      journal.grant({ ...ours, id: store, store });
    }
    journal.end("left", bootTimeMs() + 60_000);
    for (const store of ["locked", "free"]) journal.end(store, soonMs);
    journal.end("ended");
  });
  await until("the time of two is over", () => bootTimeMs() > soonMs);
  const isLocked = (store: string) => store === "locked";
  const second = open(dir.path, { incarnation: "second", isLocked });
  expect([...second.journal.unfinished].toSorted()).toEqual(["alive", "left", "locked"]);
  second.journal.endInherited("alive");
  // Granting is when what is past is forgotten.
  const untilMs = second.journal.lingerUntilMs("locked");
  await until("it is to be looked at again", () => bootTimeMs() > untilMs);
  second.journal.grant({ ...ours, id: "other", store: "other" });
  second.journal.end("other");
  expect(second.journal.lingerUntilMs("locked")).toBeGreaterThan(untilMs);
  second.close();
  const third = open(dir.path, { incarnation: "third", isLocked: () => false });
  expect([...third.journal.unfinished].toSorted()).toEqual(["left", "locked"]);
  const lastMs = third.journal.lingerUntilMs("locked");
  third.close();
  await until("its time is over", () => bootTimeMs() > lastMs);
  const fourth = open(dir.path, { isLocked: () => false });
  expect([...fourth.journal.unfinished]).toEqual(["left"]);
  fourth.close();
});

test("endInherited() ends what earlier incarnations left on one store, for good", async () => {
  using dir = tempDir();
  await using client = child(["sleep", "60"]);
  const startTime = processStartTime(client.pid)!;
  earlier(dir.path, (state) => {
    for (const store of ["a", "b"]) {
      state.journal.grant({ id: store, store, epoch: 1, pid: client.pid, startTime });
    }
  });
  const first = open(dir.path);
  first.journal.endInherited("a");
  expect(first.journal.survivors("a")).toEqual([]);
  expect(first.journal.survivors("b")).toHaveLength(1);
  first.close();
  const second = open(dir.path);
  expect(second.journal.survivors().map(({ id }) => id)).toEqual(["b"]);
  second.close();
});

test("endInherited() ends all that earlier incarnations left, but not what has the lock still", async () => {
  using dir = tempDir();
  await using client = child(["sleep", "60"]);
  const ours = { epoch: 1, pid: client.pid, startTime: processStartTime(client.pid)! };
  earlier(dir.path, ({ journal }) => {
    journal.grant({ ...ours, id: "a", store: "a", lingerMs: 500 });
    journal.grant({ ...ours, id: "b", store: "b", lingerMs: 10 });
    journal.grant({ ...ours, id: "c", store: "c" });
  });
  const first = open(dir.path, { incarnation: "first" });
  expect(first.journal.inheritedMs).toBe(500);
  first.journal.endInherited();
  expect(first.journal.survivors()).toEqual([]);
  const overMs = first.journal.lingerUntilMs("a");
  first.close();
  await until("what was left is past", () => bootTimeMs() > overMs);
  const second = open(dir.path, { isLocked: (store) => store === "a" });
  expect([...second.journal.unfinished]).toEqual(["a"]);
  second.close();
});

test("journal holds nobody alive when the machine was started again", () => {
  using dir = tempDir();
  const grant = { id: "g", store: "s", epoch: 1, pid: 0, startTime: null };
  earlier(dir.path, (state) => state.journal.grant(grant), { boot: "before" });
  const state = open(dir.path);
  expect(state.journal.survivors()).toEqual([]);
  state.close();
  expect(readFileSync(join(dir.path, "grants"), "utf8")).not.toContain('"g"');
});

test("journal is readable by people", () => {
  using dir = tempDir();
  earlier(dir.path, (state) => {
    state.journal.grant({ id: "g", store: "team/s", epoch: 9, pid: 5, startTime: 6 });
    state.journal.end("g");
    expect(state.journal.secure("other")).toBeNull();
    expect(readFileSync(join(dir.path, "grants"), "utf8")).toBe(
      `{"boot":"${bootId()}"}\n` +
        '{"key":"g","value":{"store":"team/s","epoch":9,"pid":5,"startTime":6}}\n{"key":"g"}\n',
    );
  });
});

test.skipIf(noSmallDisk !== null)(
  "open() works when the disk is full, grants nothing that it could not journal",
  () => {
    using disk = smallDisk(128 * 1024);
    const path = join(disk.path, "state");
    earlier(path, () => {});
    disk.fill();
    const state = open(path);
    expect([...state.previousIncarnations]).toEqual(["earlier"]);
    expect(state.problem).toMatch(/no space left on device/);
    const grant = { id: "g", store: "s", epoch: 1, pid: process.pid, startTime: 1 };
    state.journal.grant(grant);
    expect(state.journal.secure("g")).toMatch(/^Cannot write .*grants: no space left on device/);
    expect(state.journal.secure("g")).toMatch(/^Cannot write .*grants: no space left on device/);
    expect(state.journal.catchUp()).toMatch(/no space left on device/);
    state.journal.end("g");
    expect(state.journal.tryWrite()).toMatch(/^Cannot write .*grants: no space left on device/);
    expect(state.rememberStranger("a")).toMatch(
      /^Cannot write .*strangers: no space left on device/,
    );
    expect(state.strangers).toEqual(new Set(["a"]));
    disk.empty();
    expect(state.journal.tryWrite()).toBeNull();
    state.journal.grant(grant);
    expect(state.journal.secure("g")).toBeNull();
    expect(state.rememberStranger("b")).toBeNull();
    state.rememberGrace("s", bootTimeMs() + 60_000);
    state.close();
    const again = open(path, { incarnation: "next" });
    expect(again.strangers).toEqual(new Set(["a", "b"]));
    expect([...again.graces().keys()]).toEqual(["s"]);
    expect(again.problem).toBeNull();
    again.close();
  },
);

test.skipIf(noSmallDisk !== null).each<[string, (state: StateDir) => unknown]>([
  ["problem is asked for", (state) => state.problem],
  ["the buckets are looked at", (state) => state.rememberMade("leases", "then")],
])("all that a full disk did not take is on it once there is room and %s", (_, catchUp) => {
  using disk = smallDisk(128 * 1024);
  const path = join(disk.path, "state");
  mkdirSync(path);
  disk.fill();
  // It is full from the first start on: of each file there is nothing but its name.
  const state = open(path, { incarnation: "earlier" });
  expect(state.rememberMade("leases", "then")).toMatch(/no space left on device/);
  expect(state.rememberStranger("a")).toMatch(/no space left on device/);
  expect(catchUp(state)).toMatch(/no space left on device/);
  const sizes = () =>
    ["incarnations", "buckets", "strangers"].map((name) => statSync(join(path, name)).size > 0);
  expect(sizes()).toEqual([false, false, false]);
  disk.empty();
  expect(catchUp(state)).toBeNull();
  expect(sizes()).toEqual([true, true, true]);
  expect(state.problem).toBeNull();
  state.close();
  const next = open(path);
  expect([...next.previousIncarnations]).toEqual(["earlier"]);
  expect([next.madeOf("leases"), [...next.strangers]]).toEqual(["then", ["a"]]);
  next.close();
});

test("close() leaves nothing open and the directory to others", async () => {
  using dir = tempDir();
  const before = openFds();
  const state = open(dir.path);
  state.rememberStranger("a");
  state.rememberGrace("a", bootTimeMs() + 1_000);
  state.close();
  while (openedSince(before).length > 0) await Bun.sleep(1); // closed by the flush that was under way
  open(dir.path).close();
});

test("problem tells that the lock keeps nobody out when its file or directory was removed or replaced", async () => {
  using dir = tempDir();
  const path = join(dir.path, "state");
  const state = open(path);
  expect(state.problem).toBeNull();
  const lockFile = join(path, "lock");
  renameSync(lockFile, join(path, "aside"));
  expect(state.problem).toStartWith(`${lockFile} was removed or replaced under this agent`);
  expect(state.problem).toContain("restart this agent");
  // This is what it warns of.
  const other = await agent(path);
  expect(state.problem).toContain(lockFile);
  await other.kill();
  renameSync(join(path, "aside"), lockFile);
  expect(state.problem).toBeNull();
  rmSync(path, { recursive: true });
  expect(state.problem).toContain(lockFile);
  state.close();
});
