import { describe, expect, test } from "bun:test";
import {
  groupsFromProc,
  groupsInStatus,
  type Peer,
  PeerPolicy,
  type PeerRules,
} from "../../src/socket/peers.ts";

const PEER: Peer = { pid: 10, uid: 1_000, gid: 100 };

function policy(rules: Partial<PeerRules>): PeerPolicy {
  return new PeerPolicy({
    allowUids: [],
    allowGids: [],
    adminUids: [],
    ownUid: 500,
    groupsOf: () => {
      throw new Error("not to be asked");
    },
    ...rules,
  });
}

describe("PeerPolicy", () => {
  test("connect() lets in whoever comes when nobody is named", () => {
    expect(policy({}).connect(PEER)).toBeNull();
  });

  test("connect() lets in named users and primary groups without asking for more", () => {
    expect(policy({ allowUids: [5, 1_000] }).connect(PEER)).toBeNull();
    expect(policy({ allowGids: [100] }).connect(PEER)).toBeNull();
  });

  test("connect() lets in members of a named group", () => {
    const groupsOf = () => [7, 8];
    expect(policy({ allowGids: [8], groupsOf }).connect(PEER)).toBeNull();
    expect(policy({ allowGids: [9], groupsOf }).connect(PEER)?.kind).toBe("forbidden");
  });

  test("connect() refuses everybody else, root and the agent's own user, too", () => {
    const rules = policy({ allowUids: [1_001] });
    for (const uid of [0, 500, 1_000]) {
      expect(rules.connect({ ...PEER, uid })).toEqual({
        kind: "forbidden",
        message: expect.stringContaining(`User ${uid} may not use this agent`),
      });
    }
  });

  test("call() lets root and the agent's own user step down when nobody is named", () => {
    expect(policy({}).call({ ...PEER, uid: 0 }, "stepdown")).toBeNull();
    expect(policy({}).call({ ...PEER, uid: 500 }, "stepdown")).toBeNull();
    expect(policy({}).call(PEER, "stepdown")?.message).toContain("users 0, 500 may (--admin-uid)");
    expect(policy({}).call(PEER, "guard")).toBeNull();
  });

  test("call() lets only named users step down when some are", () => {
    const rules = policy({ adminUids: [1_000] });
    expect(rules.call(PEER, "stepdown")).toBeNull();
    expect(rules.call({ ...PEER, uid: 0 }, "stepdown")?.kind).toBe("forbidden");
  });
});

describe("groupsFromProc()", () => {
  test("tells the groups of a process", () => {
    const self = { pid: process.pid, uid: process.geteuid!(), gid: process.getegid!() };
    const groups = [...groupsFromProc(self)].sort();
    expect(groups).toEqual([...new Set(process.getgroups!())].sort());
  });

  test("tells none of a process that is gone or another user's by now", () => {
    expect(groupsFromProc({ ...PEER, pid: 0 })).toEqual([]);
    const self = { pid: process.pid, uid: process.geteuid!() + 1, gid: 0 };
    expect(groupsFromProc(self)).toEqual([]);
  });

  test("groupsInStatus() reads the effective user and all groups", () => {
    const status = "Name:\tx\nUid:\t5\t1000\t5\t5\nGid:\t1\t1\t1\t1\nGroups:\t4 24 27 \nX:\t1\n";
    expect(groupsInStatus(status, 1_000)).toEqual([4, 24, 27]);
    expect(groupsInStatus(status, 5)).toEqual([]);
    expect(groupsInStatus(status.replace("4 24 27 ", ""), 1_000)).toEqual([]);
  });
});
