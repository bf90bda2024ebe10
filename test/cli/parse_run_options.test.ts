import { expect, test } from "bun:test";
import fc from "fast-check";
import { Failure } from "../../src/cli/failure.ts";
import { FLAGS, twinOf } from "../../src/cli/run_flags.ts";
import { parseRunOptions } from "../../src/cli/parse_run_options.ts";
import type { NatsOptions, RunOptions } from "../../src/cli/run_options.ts";
import { createProgram } from "../../src/cli/program.ts";
import { checkOptions } from "../../src/nats/options.ts";
import { plainClock, plainTimers } from "../support/plain_clock.ts";

type Raw = Parameters<typeof parseRunOptions>[0];

const NATS: Raw = { nats: ["nats://n1:4222"], node: "host-1" };

function parse(raw: Raw, env: Record<string, string> = {}): RunOptions {
  return parseRunOptions(raw, { env, socketPath: "/run/zit-agent/agent.sock" });
}

function refusal(raw: Raw, env: Record<string, string> = {}): string {
  try {
    parse(raw, env);
  } catch (error) {
    expect(error).toBeInstanceOf(Failure);
    expect((error as Failure).exit).toBe(64);
    return (error as Failure).message;
  }
  throw new Error("not refused");
}

test("parseRunOptions() has the contract's defaults", () => {
  expect(parse(NATS)).toEqual({
    node: "host-1",
    coordinator: {
      kind: "nats",
      urls: ["nats://n1:4222"],
      bucket: "leases",
      replicas: null,
      allowUnsafeServer: false,
      credentials: { creds: null, nkey: null, user: null },
      tls: { ca: null, cert: null, key: null },
    },
    address: null,
    ttlMs: null,
    graceMs: null,
    interestMs: 900_000,
    storesFile: null,
    drainMs: 30_000,
    socketPath: "/run/zit-agent/agent.sock",
    socketIsDefault: true,
    stateDir: "/var/lib/zit-agent",
    lockPath: "/var/lib/zit/{store}/lease.lock",
    callers: { allowUids: null, allowGids: null, adminUids: null },
    limits: { maxConnections: 1_024, maxWaiters: 10_000, maxGrants: 1_024 },
    httpAddress: null,
    log: { format: "json", level: "info" },
    warnings: [],
  });
});

test("parseRunOptions() takes URLs separated by commas, repeated, and without a scheme", () => {
  const { coordinator } = parse({ ...NATS, nats: ["nats://a:1,tls://b:2", "c", "[::1]:4222"] });
  expect(coordinator).toMatchObject({ urls: ["nats://a:1", "tls://b:2", "c", "[::1]:4222"] });
});

test("parseRunOptions() refuses neither and both of --nats and --standalone", () => {
  expect(refusal({ node: "n" })).toContain("Neither --nats nor --standalone");
  expect(refusal({ ...NATS, standalone: "alone" })).toContain("--nats and --standalone contradict");
  expect(refusal(NATS, { ZIT_AGENT_STANDALONE: "alone" })).toContain("ZIT_AGENT_STANDALONE");
  expect(refusal({ standalone: "  " })).toContain("--standalone is empty");
  expect(refusal({ standalone: "\u200b" })).toContain("--standalone needs a reason");
});

test("parseRunOptions() never repeats credentials that were put into a URL", () => {
  const message = refusal({ ...NATS, nats: ["nats://me:secret@n1:4222"] });
  expect(message).toContain("--creds");
  expect(message).not.toContain("secret");
  expect(refusal({ ...NATS, nats: ["token@n1"] })).toContain("credentials in a URL");
});

test.each([
  ...["http://n1", "nats://", "nats://n1:x", "n1/path", "nats://a b", "nats://n1//", "a\\b", "%"],
  ...["[1]:4222", "[::1", "nats://1.2.3.4.5", "999.1.1.1:4222", "n1:4222:1", "nats://n1:"],
])(
  "parseRunOptions() refuses %p as a server",
  (url) => expect(refusal({ ...NATS, nats: [url] })).toContain("is no NATS server"),
);

test.each(["a b", "tab\t", "bell\x07", "x".repeat(129), "line\n", "nö", "\u200b", " n", "n "])(
  "parseRunOptions() refuses %p as a node name, with and without a coordinator",
  (node) => {
    const why = "--node must be 1 to 128 printable ASCII characters without blanks";
    expect(refusal({ ...NATS, node })).toContain(why);
    expect(refusal({ standalone: "alone", node })).toContain(why);
    expect(refusal({ nats: ["n1"] }, { ZIT_AGENT_NODE: node })).toContain("ZIT_AGENT_NODE must be");
  },
);

test.each([
  "nö",
  " x",
  "x ",
  "a\nb",
  "a\r\nKV-Operation: DEL",
  "tab\t",
  "x".repeat(1_025),
  "\u00a0",
])(
  "parseRunOptions() refuses %p as an address, with and without a coordinator",
  (address) => {
    const why = /--address (must be 1 to 1024 printable ASCII characters|is empty)/;
    expect(refusal({ ...NATS, address })).toMatch(why);
    expect(refusal({ standalone: "alone", address })).toMatch(why);
  },
);

test("parseRunOptions() takes the longest node name, address and bucket", () => {
  const longest = {
    node: "~".repeat(128),
    address: `a ${"b".repeat(1_021)}!`,
    bucket: "b".repeat(244),
  };
  expect(parse({ ...NATS, ...longest })).toMatchObject({
    node: longest.node,
    address: longest.address,
    coordinator: { bucket: longest.bucket },
  });
  const message = refusal({ ...NATS, bucket: "b".repeat(245) });
  expect(message).toContain("--bucket must be 1 to 244 of");
});

test("parseRunOptions() takes nothing that the coordinator's adapter then refuses", () => {
  const text = fc.oneof(
    fc.string({ minLength: 1, maxLength: 300 }),
    fc.string({ unit: fc.constantFrom(..."nN0.:/[]-@ö %\\\n\t~"), minLength: 1, maxLength: 12 }),
  );
  const flag = fc.constantFrom("node", "address", "bucket", "replicas", "ttl", "nats");
  let taken = 0;
  fc.assert(
    fc.property(flag, text, (name, value) => {
      const raw = { ...NATS, [name]: name === "nats" ? [value] : value };
      let options: RunOptions;
      try {
        options = parse(raw);
      } catch (error) {
        expect((error as Failure).exit).toBe(64);
        return;
      }
      taken++;
      const { node, address, ttlMs } = options;
      const { urls, bucket, replicas } = options.coordinator as NatsOptions;
      checkOptions({
        ...{ node, address, urls, bucket, incarnation: "i" },
        ...{ replicas: replicas ?? undefined, ttlMs: ttlMs ?? undefined },
        ...{ clock: plainClock, timers: plainTimers },
      });
    }),
    { numRuns: 3_000 },
  );
  expect(taken).toBeGreaterThan(0);
});

test("parseRunOptions() wants a node name with --nats, and takes the hostname without", () => {
  expect(refusal({ nats: ["n1"] })).toContain("--node is missing");
  expect(parse({ standalone: "alone" }).node).not.toBe("");
});

test("parseRunOptions() reads each flag's twin, and the flag wins", () => {
  const env = {
    ZIT_AGENT_NATS: "a,b",
    ZIT_AGENT_NODE: "env-node",
    ZIT_AGENT_TTL: "20s",
    ZIT_AGENT_ALLOW_UID: "1,2",
    ZIT_AGENT_ALLOW_UNSAFE_SERVER: "yes",
    ZIT_AGENT_SOCKET: "/tmp/s",
  };
  const options = parse({ ttl: "10s" }, env);
  expect(options).toMatchObject({
    node: "env-node",
    ttlMs: 10_000,
    socketPath: "/tmp/s",
    socketIsDefault: false,
  });
  expect(options.callers.allowUids).toEqual([1, 2]);
  expect(options.coordinator).toMatchObject({ urls: ["a", "b"], allowUnsafeServer: true });
});

test("parseRunOptions() counts an empty variable as not set", () => {
  const empty = Object.fromEntries(FLAGS.map(({ name }) => [twinOf(name), ""]));
  expect(parse(NATS, empty)).toEqual(parse(NATS));
});

test.each([
  ["ZIT_AGENT_TTL", "15"],
  ["ZIT_AGENT_TTL", "1ms"],
  ["ZIT_AGENT_GRACE", "x"],
  ["ZIT_AGENT_INTEREST", "0"],
  ["ZIT_AGENT_REPLICAS", "6"],
  ["ZIT_AGENT_MAX_GRANTS", "0"],
  ["ZIT_AGENT_ALLOW_GID", "staff"],
  ["ZIT_AGENT_ADMIN_UID", "4294967295"],
  ["ZIT_AGENT_ALLOW_UNSAFE_SERVER", "maybe"],
  ["ZIT_AGENT_LOG_FORMAT", "xml"],
  ["ZIT_AGENT_LOCK_PATH", "/var/lock/one"],
  ["ZIT_AGENT_LOCK_PATH", "/var/lock/{store}/"],
  ["ZIT_AGENT_LOCK_PATH", "/var/lock/{store}/../one"],
  ["ZIT_AGENT_BUCKET", "a.b"],
  ["ZIT_AGENT_HTTP", "9464"],
  ["ZIT_AGENT_HTTP", "999.1.1.1:9464"],
  ["ZIT_AGENT_HTTP", "]:9464"],
  ["ZIT_AGENT_NATS", "a,,b"],
])("parseRunOptions() names the variable when %s is %p", (name, value) => {
  const raw: Raw = name === "ZIT_AGENT_NATS" ? { node: "n" } : NATS;
  expect(refusal(raw, { [name]: value })).toContain(name);
});

test.each([
  [{ user: "u" }, "--user and --password-file"],
  [{ "password-file": "f" }, "--user and --password-file"],
  [{ creds: "a", nkey: "b" }, "--creds and --nkey"],
  [{ "tls-cert": "c" }, "--tls-cert and --tls-key"],
])("parseRunOptions() refuses %p as incomplete or contradictory", (raw, why) => {
  expect(refusal({ ...NATS, ...raw })).toContain(why);
});

test("parseRunOptions() takes 0 as no grace and no drain", () => {
  expect(parse({ ...NATS, grace: "0", drain: "0" })).toMatchObject({ graceMs: 0, drainMs: 0 });
});

test("parseRunOptions() makes paths absolute", () => {
  const options = parse({ ...NATS, stores: "list", "lock-path": "locks/{store}" });
  expect(options.storesFile).toBe(`${process.cwd()}/list`);
  expect(options.lockPath).toBe(`${process.cwd()}/locks/{store}`);
});

test.each([
  ["ZIT_AGENT_LOKC_PATH", "did you mean ZIT_AGENT_LOCK_PATH?"],
  ["ZIT_AGENT_NAT", "did you mean ZIT_AGENT_NATS?"],
  ["ZIT_AGENT_STATEDIR", "did you mean ZIT_AGENT_STATE_DIR?"],
  ["ZIT_AGENT_FROBNICATION", "see `agent help run`"],
  ["ZIT_AGENT_", "see `agent help run`"],
])("parseRunOptions() warns of %s, which does nothing, and goes on", (name, hint) => {
  const env = { [name]: "x", ZIT_AGENT_DEBUG: "1", ZIT_AGENT_SOCKET: "/s", ZIT_LEASE_STORE: "s" };
  const { warnings } = parse(NATS, env);
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toStartWith(`${name} is set, but there is no such setting`);
  expect(warnings[0]).toEndWith(hint);
});

test.each(["1e2", "0x10", "+5", "5.0", "5_0", "５", "-1", "1 2"])(
  "parseRunOptions() takes numbers and ids in plain digits, not %p",
  (text) => {
    for (const name of ["max-grants", "max-waiters", "max-connections", "replicas"]) {
      expect(refusal({ ...NATS, [name]: text })).toContain("whole number");
    }
    for (const name of ["allow-uid", "allow-gid", "admin-uid"]) {
      expect(refusal({ ...NATS, [name]: [text] })).toContain("numeric ids");
    }
    expect(refusal({ ...NATS, http: `127.0.0.1:${text}` })).toContain("--http");
  },
);

test("every flag of run is in its help, with a twin that no other flag has", () => {
  const help = createProgram({ env: {}, exit: 0 }).commands
    .find((each) => each.name() === "run")!.helpInformation();
  for (const { name } of FLAGS) expect(help).toContain(`--${name}`);
  expect(new Set(FLAGS.map(({ name }) => twinOf(name))).size).toBe(FLAGS.length);
});

test.each([
  [{ bucket: "a.b" }, {}, "--bucket"],
  [{ http: "127.0.0.1:99999" }, {}, "--http must be HOST:PORT"],
  [{ replicas: "9" }, {}, "--replicas"],
  [{ "tls-cert": "c.pem" }, {}, "--tls-key"],
  [{}, { ZIT_AGENT_ALLOW_UNSAFE_SERVER: "maybe" }, "ZIT_AGENT_ALLOW_UNSAFE_SERVER must be 1 or 0"],
] as [Raw, Record<string, string>, string][])(
  "parseRunOptions() refuses %p %p with and without a coordinator",
  (raw, env, why) => {
    expect(refusal({ ...NATS, ...raw }, env)).toContain(why);
    expect(refusal({ standalone: "alone", ...raw }, env)).toContain(why);
  },
);

test("parseRunOptions() takes ports from 1 to 65535, and 0 to listen on any", () => {
  expect(refusal({ ...NATS, nats: ["nats://a:65536"] })).toContain("is no NATS server");
  expect(refusal({ ...NATS, nats: ["nats://a:0"] })).toContain("is no NATS server");
  expect(parse({ ...NATS, nats: ["nats://a:65535"], http: "[::1]:0" }).httpAddress).toBe("[::1]:0");
});
