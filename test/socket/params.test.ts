import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { MAX_PAGE, MAX_WAIT_MS, parseParams } from "../../src/socket/params.ts";
import { MAX_HELD_STORES, type Method } from "../../src/socket/protocol.ts";

function messageOf(method: Method, params: unknown): string {
  const result = parseParams(method, params);
  if (result.ok) throw new Error(`${method} took ${JSON.stringify(params)}`);
  expect(result.refusal.kind).toBe("invalid");
  return result.refusal.message;
}

function filled(method: Method, params: unknown): unknown {
  const result = parseParams(method, params);
  if (!result.ok) throw new Error(result.refusal.message);
  return result.params;
}

describe("parseParams()", () => {
  test("fills in the defaults when members are left out", () => {
    expect(filled("guard", { store: "a" })).toEqual({
      store: "a",
      wait_ms: 0,
      shared: false,
      wait_lease: false,
      pass_lock: false,
      follow: false,
    });
    expect(filled("leases", undefined)).toEqual({ limit: 1_000 });
    expect(filled("watch", {})).toEqual({});
    expect(filled("status", undefined)).toEqual({});
    expect(filled("stepdown", { all: true })).toEqual({ all: true });
  });

  test("ignores members that nobody knows", () => {
    expect(filled("verify", { token: "t", store: "a", colour: "red" })).toEqual({
      pass_lock: false,
      token: "t",
      store: "a",
    });
    expect(filled("held", JSON.parse('{"store":"a","__proto__":{"stores":["b"]}}'))).toEqual({
      store: "a",
    });
  });

  test.each<[Method, unknown, string]>([
    ["guard", {}, "store is missing"],
    ["guard", { store: 5 }, "store must be a string"],
    ["guard", { store: null }, "store must be a string"],
    ["guard", { store: "a", wait_ms: "5" }, "wait_ms must be a number"],
    ["guard", { store: "a", wait_ms: null }, "wait_ms must be a number"],
    ["guard", { store: "a", wait_ms: -1 }, "wait_ms must not be negative"],
    ["guard", JSON.parse('{"store":"a","wait_ms":1e999}'), "wait_ms must be a finite number"],
    ["guard", { store: "a", shared: 1 }, "shared must be true or false"],
    ["guard", { store: "a", wait_lease: "yes" }, "wait_lease must be true or false"],
    ["guard", { store: "a", pass_lock: {} }, "pass_lock must be true or false"],
    ["guard", { store: "a", follow: [] }, "follow must be true or false"],
    ["guard", { store: "a", purpose: 5 }, "purpose must be a string"],
    ["guard", { store: "a", purpose: "x".repeat(1_025) }, "purpose must be at most"],
    ["verify", { store: "a" }, "token is missing"],
    ["verify", { token: 5, store: "a" }, "token must be a string"],
    ["release", {}, "token is missing"],
    ["held", {}, "either store or stores"],
    ["held", { store: "a", stores: ["b"] }, "either store or stores"],
    ["held", { stores: "a" }, "stores must be an array"],
    ["held", { stores: ["a", 5] }, "stores[1] must be a string"],
    ["held", { stores: ["a", "b", "../c"] }, "stores[2] is not a store code"],
    ["held", { stores: Array(MAX_HELD_STORES + 1).fill("a") }, "stores must be at most 10000"],
    ["holder", {}, "store is missing"],
    ["watch", { stores: {} }, "stores must be an array"],
    ["unwatch", { subscription: 5 }, "subscription must be a string"],
    ["leases", { limit: 0 }, "limit must be at least 1"],
    ["leases", { limit: 1.5 }, "limit must be a whole number"],
    ["leases", { prefix: 5 }, "prefix must be a string"],
    ["leases", { after: 5 }, "after must be a string"],
    ["history", { store: [] }, "store must be a string"],
    ["stepdown", {}, "either store or all"],
    ["stepdown", { all: false }, "either store or all"],
    ["stepdown", { store: "a", all: true }, "either store or all"],
    ["stepdown", { all: 1 }, "all must be true or false"],
    ["stepdown", { all: true, for_ms: "1m" }, "for_ms must be a number"],
    ["stepdown", { all: true, for_ms: 1e300 }, "for_ms must be at most 2147483647 (24.8 days)"],
    ["stepdown", { store: "a", for_ms: MAX_WAIT_MS + 1 }, "for_ms must be at most"],
    ["stepdown", { store: "a", for_ms: -1 }, "for_ms must not be negative"],
    ["guard", ["a"], "object of named members"],
    ["guard", null, "object of named members"],
    ["status", "x", "object of named members"],
  ])("refuses %s %j", (method, params, sentence) => {
    const message = messageOf(method, params);
    expect(message).toContain(sentence);
    expect(message).toStartWith(`Cannot answer "${method}": `);
  });

  test.each([
    "",
    ".",
    "..",
    "a/",
    "/a",
    "a//b",
    "a/../b",
    "-a",
    "a b",
    "a\n",
    "é",
    "x".repeat(129),
  ])(
    "refuses the store code %j in every method that takes one, but leaves a guard's to its first gate",
    (store) => {
      expect(filled("guard", { store })).toMatchObject({ store });
      for (const method of ["holder", "history", "held", "stepdown"] as const) {
        expect(messageOf(method, { store })).toContain("store is not a store code");
      }
      expect(messageOf("verify", { token: "t", store })).toContain("store is not a store code");
      expect(messageOf("watch", { stores: [store] })).toContain("stores[0] is not a store code");
    },
  );

  test("cuts what is too much to a limit where it does no harm", () => {
    expect(filled("guard", { store: "a", wait_ms: 1e300 })).toMatchObject({ wait_ms: MAX_WAIT_MS });
    expect(filled("leases", { limit: 1e9 })).toEqual({ limit: MAX_PAGE });
  });

  test("takes up to 10,000 stores, __proto__ among them", () => {
    const stores = Array.from({ length: MAX_HELD_STORES }, (_, i) => `store-${i}`);
    stores[5] = "__proto__";
    expect(filled("held", { stores })).toEqual({ stores });
  });

  test("answers whatever it is given", () => {
    const methods = fc.constantFrom<Method>(
      ...["guard", "verify", "release", "held", "holder", "watch", "unwatch"] as const,
      ...["status", "leases", "history", "stepdown"] as const,
    );
    const names = fc.constantFrom("store", "stores", "token", "wait_ms", "all", "limit", "purpose");
    const params = fc.oneof(fc.jsonValue(), fc.dictionary(names, fc.jsonValue()));
    fc.assert(fc.property(methods, params, (method, value) => {
      const result = parseParams(method, value);
      if (!result.ok) expect(result.refusal.message.length).toBeGreaterThan(10);
    }));
  });
});
