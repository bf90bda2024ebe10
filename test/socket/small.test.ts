import { describe, expect, test } from "bun:test";
import { type Kind, KINDS } from "../../src/lease/errors.ts";
import { takeActivationFd } from "../../src/socket/activation.ts";
import { SocketError } from "../../src/socket/path_checks.ts";
import {
  connectionLimit,
  descriptorWarning,
  inFlightLimit,
  lockLimit,
  tooFewDescriptors,
  turnedAwayLimit,
} from "../../src/socket/limits.ts";
import { errorObject, unknownMethod } from "../../src/socket/refusals.ts";
import { suggest } from "../../src/socket/suggest.ts";

describe("takeActivationFd()", () => {
  test("gives descriptor 3 when systemd passed one socket to this process", () => {
    const env = { LISTEN_PID: "10", LISTEN_FDS: "1", LISTEN_FDNAMES: "x", HOME: "/" };
    expect(takeActivationFd(env, 10)).toBe(3);
    expect(env).toEqual({ HOME: "/" } as typeof env);
  });

  test("gives null when none was passed, or to another process", () => {
    expect(takeActivationFd({}, 10)).toBeNull();
    expect(takeActivationFd({ LISTEN_PID: "11", LISTEN_FDS: "1" }, 10)).toBeNull();
    expect(takeActivationFd({ LISTEN_PID: "10", LISTEN_FDS: "0" }, 10)).toBeNull();
    expect(takeActivationFd({ LISTEN_PID: "10" }, 10)).toBeNull();
  });

  test("refuses when several were passed", () => {
    expect(() => takeActivationFd({ LISTEN_PID: "10", LISTEN_FDS: "2" }, 10)).toThrow(SocketError);
  });
});

describe("turnedAwayLimit()", () => {
  test("grows with the descriptors, and leaves room for connections and locks", () => {
    expect(turnedAwayLimit(256)).toBe(64);
    expect(turnedAwayLimit(4_096)).toBe(256);
    expect(turnedAwayLimit(Infinity)).toBe(1_024);
    for (const descriptors of [256, 1_024, 4_096, 65_536]) {
      const taken = turnedAwayLimit(descriptors) + connectionLimit(Infinity, descriptors) +
        lockLimit(descriptors);
      expect(taken).toBeLessThan(descriptors);
    }
  });
});

describe("connectionLimit()", () => {
  test("gives what is wanted when there are descriptors enough, else what leaves room for locks", () => {
    expect(connectionLimit(1_024, 65_536)).toBe(1_024);
    expect(connectionLimit(1_024, Infinity)).toBe(1_024);
    expect(connectionLimit(1_024, 1_024)).toBe(448);
    expect(connectionLimit(10, 1_024)).toBe(10);
    expect(connectionLimit(1_024, 64)).toBe(1);
  });
});

describe("inFlightLimit()", () => {
  test("leaves room for a release behind all the guards that may wait", () => {
    expect(inFlightLimit(10_000, 1_024)).toBe(16_384);
    expect(inFlightLimit(50_000, 2_000)).toBeGreaterThan(52_000);
  });
});

describe("errorObject()", () => {
  test("gives the code of every kind", () => {
    for (const kind of Object.keys(KINDS) as Kind[]) {
      expect(errorObject({ kind, message: "m" })).toEqual({
        code: KINDS[kind].code,
        message: "m",
        data: { kind },
      });
    }
  });

  test("tells when to try again and who holds", () => {
    const holder = { node: "n", address: null, epoch: 5, since: null };
    expect(errorObject({ kind: "not_holder", message: "m", retryAfterMs: 10, holder }).data)
      .toEqual({
        kind: "not_holder",
        retry_after_ms: 10,
        holder,
      });
  });
});

describe("suggest()", () => {
  const methods = ["guard", "verify", "release", "held", "holder", "watch", "unwatch", "stepdown"];

  test("names what is near, nearest first", () => {
    expect(suggest("gaurd", methods)).toEqual(["guard"]);
    expect(suggest("GUARD", methods)).toEqual(["guard"]);
    expect(suggest("helder", methods)).toEqual(["holder", "held"]);
    expect(suggest("unwach", methods)).toEqual(["unwatch"]);
    expect(suggest("steppdown", methods)).toEqual(["stepdown"]);
  });

  test("names nothing when nothing is near", () => {
    expect(suggest("", methods)).toEqual([]);
    expect(suggest("lock", methods)).toEqual([]);
    expect(suggest("x".repeat(1_000_000), methods)).toEqual([]);
    const message = unknownMethod("x".repeat(1_000_000), methods).message;
    expect(message.length).toBeLessThan(300);
  });
});

describe("descriptors", () => {
  test("tooFewDescriptors() refuses what could run out, and names what is needed", () => {
    for (let descriptors = 1; descriptors < 4_096; descriptors++) {
      const taken = turnedAwayLimit(descriptors) + connectionLimit(16, descriptors) +
        lockLimit(descriptors);
      if (tooFewDescriptors(descriptors) !== null) continue;
      expect(connectionLimit(16, descriptors)).toBe(16);
      expect(taken).toBeLessThanOrEqual(descriptors - 64);
    }
    expect(tooFewDescriptors(64)).toMatch(/^Cannot run with 64 open files .* at least \d+; raise/);
    expect(tooFewDescriptors(1_024)).toBeNull();
  });

  test("descriptorWarning() says what flags there are too few for, and how many do", () => {
    const wanted = { maxConnections: 1_024, maxWaiters: 10_000 };
    expect(descriptorWarning(wanted, 524_288)).toBeNull();
    expect(descriptorWarning(wanted, 1_024)).toMatch(
      /only 448 connections \(--max-connections\) and 448 guards and grants .*--max-waiters/,
    );
    const needed = Number(/to (\d+), or/.exec(descriptorWarning(wanted, 4_096)!)![1]);
    expect(descriptorWarning(wanted, needed)).toBeNull();
    expect(descriptorWarning(wanted, needed - 2)).not.toBeNull();
  });
});
