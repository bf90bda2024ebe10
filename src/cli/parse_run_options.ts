/**
 * How the flags of `agent run` become what the daemon is started with.
 * @module
 */
import { hostname } from "node:os";
import { isAbsolute, resolve } from "node:path";
import { parseLockPath } from "../disk/lock_path.ts";
import { isReason } from "../lease/reason.ts";
import { DEFAULT_INTEREST_MS } from "../lease/timing.ts";
import {
  ADDRESS,
  BUCKET_NAME,
  carriesCredentials,
  isAddress,
  isBucketName,
  isHost,
  isNodeName,
  isPort,
  isServerUrl,
  MAX_REPLICAS,
  MIN_TTL_MS,
  NODE_NAME,
} from "../nats/option_rules.ts";
import { usage } from "./failure.ts";
import { FlagValues } from "./flag_values.ts";
import type { Env, RawFlags } from "./flag_values.ts";
import { LOG_FORMATS, LOG_LEVELS } from "./run_flags.ts";
import type {
  Credentials,
  NatsOptions,
  RunOptions,
  StandaloneOptions,
  TlsFiles,
} from "./run_options.ts";
import { unknownVariables } from "./unknown_variables.ts";

const DEFAULT_DRAIN_MS = 30_000;
/** Enough for any machine's descriptors and memory; a larger number is a slip of the pen. */
const MAX_LIMIT = 1_000_000;

/** What is taken from the surroundings where no flag says it. */
export interface Surroundings {
  readonly env: Env;
  /** The default of `--socket`. */
  readonly socketPath: string;
}

/**
 * Makes the daemon's options of flags and their environment twins.
 *
 * @throws {Failure} with exit status 64 and a message that names the flag or the variable.
 */
export function parseRunOptions(raw: RawFlags, surroundings: Surroundings): RunOptions {
  return runOptionsOf(new FlagValues(raw, surroundings.env), surroundings);
}

/** The same of flags and twins that were read already. */
export function runOptionsOf(flags: FlagValues, surroundings: Surroundings): RunOptions {
  const coordinator = coordinatorOf(flags);
  return {
    node: nodeOf(flags, coordinator),
    coordinator,
    address: addressOf(flags),
    ttlMs: ttlOf(flags),
    graceMs: flags.durationMs("grace"),
    interestMs: positive(flags, "interest") ?? DEFAULT_INTEREST_MS,
    storesFile: path(flags, "stores"),
    drainMs: flags.durationMs("drain") ?? DEFAULT_DRAIN_MS,
    socketPath: path(flags, "socket") ?? surroundings.socketPath,
    socketIsDefault: !flags.isGiven("socket"),
    stateDir: path(flags, "state-dir") ?? "/var/lib/zit-agent",
    lockPath: lockPathOf(flags),
    callers: {
      allowUids: flags.ids("allow-uid"),
      allowGids: flags.ids("allow-gid"),
      adminUids: flags.ids("admin-uid"),
    },
    limits: {
      maxConnections: flags.count("max-connections", MAX_LIMIT) ?? 1_024,
      maxWaiters: flags.count("max-waiters", MAX_LIMIT) ?? 10_000,
      maxGrants: flags.count("max-grants", MAX_LIMIT) ?? 1_024,
    },
    httpAddress: httpOf(flags),
    log: {
      format: flags.oneOf("log-format", LOG_FORMATS) ?? "json",
      level: flags.oneOf("log-level", LOG_LEVELS) ?? "info",
    },
    warnings: unknownVariables(surroundings.env),
  };
}

function coordinatorOf(flags: FlagValues): NatsOptions | StandaloneOptions {
  const urls = flags.list("nats");
  const reason = flags.text("standalone")?.trim() ?? null;
  if (reason !== null && !isReason(reason)) {
    throw usage(`${flags.sourceOf("standalone")} needs a reason: why there is no coordinator.`);
  }
  if (urls !== null && reason !== null) {
    throw usage(
      `${flags.sourceOf("nats")} and ${flags.sourceOf("standalone")} contradict each other: ` +
        "give the NATS servers, or the reason for having none.",
    );
  }
  // Looked at in any case: a wrong value is a mistake also where it would not be used.
  const nats = {
    bucket: bucketOf(flags),
    replicas: flags.count("replicas", MAX_REPLICAS),
    allowUnsafeServer: flags.isOn("allow-unsafe-server"),
    credentials: credentialsOf(flags),
    tls: tlsOf(flags),
  };
  if (reason !== null) return { kind: "standalone", reason };
  if (urls === null) {
    throw usage(
      "Neither --nats nor --standalone was given. Name the NATS servers that coordinate the nodes " +
        "(--nats nats://HOST:4222), or say why this host needs none (--standalone REASON): an agent " +
        "that merely lacks the URL must not think it is alone.",
    );
  }
  for (const url of urls) checkUrl(url, flags.sourceOf("nats"));
  return { kind: "nats", urls, ...nats };
}

/** The message never repeats the URL's credentials: it may end in a log. */
function checkUrl(url: string, source: string): void {
  if (carriesCredentials(url)) {
    throw usage(
      `${source} has credentials in a URL, where every process list shows them: put them in a ` +
        "file and use --creds, --nkey or --user with --password-file.",
    );
  }
  if (isServerUrl(url)) return;
  throw usage(`${source}: "${url}" is no NATS server: write nats://HOST:PORT or tls://HOST:PORT.`);
}

function bucketOf(flags: FlagValues): string {
  const bucket = flags.text("bucket") ?? "leases";
  if (isBucketName(bucket)) return bucket;
  throw usage(`${flags.sourceOf("bucket")} must be ${BUCKET_NAME}, not ${quoted(bucket)}.`);
}

function credentialsOf(flags: FlagValues): Credentials {
  const creds = path(flags, "creds");
  const nkey = path(flags, "nkey");
  const name = flags.text("user");
  const passwordFile = path(flags, "password-file");
  if ((name === null) !== (passwordFile === null)) {
    throw usage("--user and --password-file belong together: give both or neither.");
  }
  const given = ["creds", "nkey", "user"].filter((each) => flags.text(each) !== null);
  if (given.length > 1) {
    const sources = given.map((each) => flags.sourceOf(each)).join(" and ");
    throw usage(`${sources} contradict each other: choose one way to authenticate.`);
  }
  const user = name === null || passwordFile === null ? null : { name, passwordFile };
  return { creds, nkey, user };
}

function tlsOf(flags: FlagValues): TlsFiles {
  const tls = {
    ca: path(flags, "tls-ca"),
    cert: path(flags, "tls-cert"),
    key: path(flags, "tls-key"),
  };
  if ((tls.cert === null) !== (tls.key === null)) {
    throw usage("--tls-cert and --tls-key belong together: give both or neither.");
  }
  return tls;
}

function nodeOf(flags: FlagValues, coordinator: RunOptions["coordinator"]): string {
  const given = flags.text("node");
  if (given === null && coordinator.kind === "nats") {
    throw usage(
      "--node is missing: give this host a name that no other host of the fleet uses, and keep it.",
    );
  }
  const node = given ?? hostname();
  const source = given === null ? "The hostname" : flags.sourceOf("node");
  if (isNodeName(node)) return node;
  const remedy = given === null ? "; name this host by --node" : "";
  throw usage(`${source} must be ${NODE_NAME}, not ${quoted(node)}${remedy}.`);
}

function addressOf(flags: FlagValues): string | null {
  const address = flags.text("address");
  if (address === null || isAddress(address)) return address;
  throw usage(`${flags.sourceOf("address")} must be ${ADDRESS}, not ${quoted(address)}.`);
}

function ttlOf(flags: FlagValues): number | null {
  const ttlMs = flags.durationMs("ttl");
  if (ttlMs === null || ttlMs >= MIN_TTL_MS) return ttlMs;
  throw usage(`${flags.sourceOf("ttl")} must be at least ${MIN_TTL_MS}ms; 15s is a good one.`);
}

function positive(flags: FlagValues, name: string): number | null {
  const ms = flags.durationMs(name);
  if (ms === 0) throw usage(`${flags.sourceOf(name)} must be more than 0.`);
  return ms;
}

/** Made absolute here, so that the daemon may change its directory. */
function path(flags: FlagValues, name: string): string | null {
  const text = flags.text(name);
  return text === null ? null : resolve(text);
}

function lockPathOf(flags: FlagValues): string {
  const text = flags.text("lock-path") ?? "/var/lib/zit/{store}/lease.lock";
  try {
    parseLockPath(text);
  } catch (error) {
    throw usage(`${flags.sourceOf("lock-path")}: ${(error as Error).message}.`);
  }
  return isAbsolute(text) ? text : resolve(text);
}

function httpOf(flags: FlagValues): string | null {
  const text = flags.text("http");
  if (text === null) return text;
  const [, host, port] = /^(\[[0-9a-f:.]+\]|[^:]*):(\d{1,5})$/i.exec(text) ?? [];
  // No host: all addresses. 0 lets the kernel choose the port; the log says which.
  const fits = host !== undefined && (host === "" || isHost(host)) &&
    (Number(port) === 0 || isPort(port!));
  if (fits) return text;
  throw usage(`${flags.sourceOf("http")} must be HOST:PORT, as in 127.0.0.1:9464, not "${text}".`);
}

/** As it would be in JSON, cut where nobody reads on. */
function quoted(text: string): string {
  return JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text);
}
