/**
 * The flags of `agent run`: one table for their parsing, their environment twins and their help.
 * @module
 */

/** How many values a flag takes: several are given by repeating it or by commas. */
export type Takes = "one" | "several" | "nothing";

/** A flag of `agent run`. */
export interface Flag {
  /** Without the dashes. */
  readonly name: string;
  readonly takes: Takes;
  /** How help names the value; empty for a switch. */
  readonly value: string;
  readonly help: string;
  readonly section: string;
  /** All values that it can have; none: they are not fixed. */
  readonly words: readonly string[];
}

type Row = readonly [
  name: string,
  takes: Takes,
  value: string,
  help: string,
  words?: readonly string[],
];

/** How the log may be written. */
export const LOG_FORMATS = ["json", "text"] as const;
/** From what level on things are logged. */
export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;

/** All flags, in the order of help. */
export const FLAGS: readonly Flag[] = [
  ...section("Coordinator", [
    ["nats", "several", "URL", "NATS servers, separated by commas; may be repeated"],
    [
      "standalone",
      "one",
      "REASON",
      "no coordinator: every store is this host's; why that is right here",
    ],
    ["bucket", "one", "NAME", "KV bucket of the leases (default: leases)"],
    ["replicas", "one", "N", "replicas of buckets made here (default: 3 in a cluster, else 1)"],
    ["creds", "one", "FILE", "NATS credentials file"],
    ["nkey", "one", "FILE", "NATS nkey seed file"],
    ["user", "one", "NAME", "NATS user, with --password-file"],
    ["password-file", "one", "FILE", "file with the password of --user"],
    ["tls-ca", "one", "FILE", "certificate authorities (default: the system's)"],
    ["tls-cert", "one", "FILE", "client certificate, with --tls-key"],
    ["tls-key", "one", "FILE", "key of --tls-cert"],
    [
      "allow-unsafe-server",
      "nothing",
      "",
      "use servers that can grant a lease twice: by version, or in no cluster",
    ],
  ]),
  ...section("Leases", [
    ["ttl", "one", "DUR", "lease TTL (default: the bucket's, 15s for a new one)"],
    ["grace", "one", "DUR", "wait after a takeover before the first grant (default: TTL)"],
    ["interest", "one", "DUR", "release a store unasked for so long (default: 15m)"],
    ["stores", "one", "FILE", "stores to hold from the start, one code a line"],
    ["drain", "one", "DUR", "how long grants may finish at the end (default: 30s)"],
  ]),
  ...section("This host", [
    ["node", "one", "NAME", "this host's unique name (standalone default: its hostname)"],
    ["address", "one", "TEXT", "where others reach this host; told to refused callers"],
    ["state-dir", "one", "DIR", "the agent's own files (default: /var/lib/zit-agent)"],
    ["lock-path", "one", "PATH", "a store's lock file (default: /var/lib/zit/{store}/lease.lock)"],
  ]),
  ...section("Callers", [
    ["socket", "one", "PATH", "socket to listen on (default: see below)"],
    [
      "allow-uid",
      "several",
      "ID",
      "users that may call (default: all that the socket's mode lets in)",
    ],
    ["allow-gid", "several", "ID", "groups that may call"],
    ["admin-uid", "several", "ID", "users that may step down (default: root and its own)"],
    ["max-connections", "one", "N", "connections at a time (default: 1024)"],
    ["max-waiters", "one", "N", "guards waiting at a time (default: 10000)"],
    ["max-grants", "one", "N", "guards and grants of one connection (default: 1024)"],
  ]),
  ...section("Log and metrics", [
    ["http", "one", "ADDR", "serve /metrics, /healthz and /readyz at HOST:PORT (default: off)"],
    ["log-format", "one", "FORMAT", "how the log is written, by default json", LOG_FORMATS],
    ["log-level", "one", "LEVEL", "the least that is logged, by default info", LOG_LEVELS],
  ]),
];

function section(title: string, rows: readonly Row[]): Flag[] {
  return rows.map(([name, takes, value, help, words = []]) => (
    { section: title, name, takes, value, help, words }
  ));
}

/** The environment twin of a flag: `ZIT_AGENT_LOCK_PATH` of `lock-path`. */
export function twinOf(name: string): string {
  return `ZIT_AGENT_${name.toUpperCase().replaceAll("-", "_")}`;
}
