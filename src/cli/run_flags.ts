/**
 * The flags of `agent run`: one table for their parsing, their environment twins and their help.
 * @module
 */

/** How the text of a flag becomes a value. */
export type FlagKind =
  | "text"
  | "list"
  | "duration"
  | "count"
  | "ids"
  | "switch"
  | { readonly oneOf: readonly string[] };

/** A flag of `agent run`. */
export interface Flag {
  /** Without the dashes. */
  readonly name: string;
  readonly kind: FlagKind;
  /** How help names the value; empty for a switch. */
  readonly value: string;
  readonly help: string;
  readonly section: string;
}

const COORDINATOR = "Coordinator";
const LEASES = "Leases";
const HOST = "This host";
const CALLERS = "Callers";
const LOG = "Log and metrics";

/** All flags, in the order of help. */
export const FLAGS: readonly Flag[] = [
  flag(COORDINATOR, "nats", "list", "URL", "NATS servers, separated by commas; may be repeated"),
  flag(
    COORDINATOR,
    "standalone",
    "text",
    "REASON",
    "no coordinator: every store is this host's; why that is right here",
  ),
  flag(COORDINATOR, "bucket", "text", "NAME", "KV bucket of the leases (default: leases)"),
  flag(
    COORDINATOR,
    "replicas",
    "count",
    "N",
    "replicas of buckets made here (default: 3 in a cluster, else 1)",
  ),
  flag(COORDINATOR, "creds", "text", "FILE", "NATS credentials file"),
  flag(COORDINATOR, "nkey", "text", "FILE", "NATS nkey seed file"),
  flag(COORDINATOR, "user", "text", "NAME", "NATS user, with --password-file"),
  flag(COORDINATOR, "password-file", "text", "FILE", "file with the password of --user"),
  flag(COORDINATOR, "tls-ca", "text", "FILE", "certificate authorities (default: the system's)"),
  flag(COORDINATOR, "tls-cert", "text", "FILE", "client certificate, with --tls-key"),
  flag(COORDINATOR, "tls-key", "text", "FILE", "key of --tls-cert"),
  flag(
    COORDINATOR,
    "allow-unsafe-server",
    "switch",
    "",
    "use a server version that is known to grant one lease twice",
  ),
  flag(LEASES, "ttl", "duration", "DUR", "lease TTL (default: the bucket's, 15s for a new one)"),
  flag(
    LEASES,
    "grace",
    "duration",
    "DUR",
    "wait after a takeover before the first grant (default: TTL)",
  ),
  flag(LEASES, "interest", "duration", "DUR", "release a store unasked for so long (default: 15m)"),
  flag(LEASES, "stores", "text", "FILE", "stores to hold from the start, one code a line"),
  flag(
    LEASES,
    "drain",
    "duration",
    "DUR",
    "how long grants may finish at the end (default: 30s)",
  ),
  flag(HOST, "node", "text", "NAME", "this host's unique name (standalone default: its hostname)"),
  flag(HOST, "address", "text", "TEXT", "where others reach this host; told to refused callers"),
  flag(HOST, "state-dir", "text", "DIR", "the agent's own files (default: /var/lib/zit-agent)"),
  flag(
    HOST,
    "lock-path",
    "text",
    "PATH",
    "a store's lock file (default: /var/lib/zit/{store}/lease.lock)",
  ),
  flag(CALLERS, "socket", "text", "PATH", "socket to listen on (default: see below)"),
  flag(
    CALLERS,
    "allow-uid",
    "ids",
    "ID",
    "users that may call (default: all that the socket's mode lets in)",
  ),
  flag(CALLERS, "allow-gid", "ids", "ID", "groups that may call"),
  flag(CALLERS, "admin-uid", "ids", "ID", "users that may step down (default: root and its own)"),
  flag(CALLERS, "max-connections", "count", "N", "connections at a time (default: 1024)"),
  flag(CALLERS, "max-waiters", "count", "N", "guards waiting at a time (default: 10000)"),
  flag(CALLERS, "max-grants", "count", "N", "grants of one connection (default: 1024)"),
  flag(
    LOG,
    "http",
    "text",
    "ADDR",
    "serve /metrics, /healthz and /readyz at HOST:PORT (default: off)",
  ),
  flag(LOG, "log-format", { oneOf: ["json", "text"] }, "FORMAT", "json (default) or text"),
  flag(
    LOG,
    "log-level",
    { oneOf: ["debug", "info", "warn", "error"] },
    "LEVEL",
    "debug, info (default), warn or error",
  ),
];

function flag(section: string, name: string, kind: FlagKind, value: string, help: string): Flag {
  return { section, name, kind, value, help };
}

/** The environment twin of a flag: `ZIT_AGENT_LOCK_PATH` of `lock-path`. */
export function twinOf(name: string): string {
  return `ZIT_AGENT_${name.toUpperCase().replaceAll("-", "_")}`;
}

/** Whether several values may be given, by repeating the flag or by commas. */
export function isRepeatable(kind: FlagKind): boolean {
  return kind === "list" || kind === "ids";
}
