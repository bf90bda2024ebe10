/**
 * What the daemon is started with.
 * @module
 */

/** How to prove to the NATS servers who we are. At most one of `creds`, `nkey`, `user` is set. */
export interface Credentials {
  /** Path of a credentials file (JWT and seed), or null. */
  readonly creds: string | null;
  /** Path of an nkey seed file, or null. */
  readonly nkey: string | null;
  /** User name and the path of the file with its password, or null. */
  readonly user: { readonly name: string; readonly passwordFile: string } | null;
}

/** Paths of PEM files. `cert` and `key` come together or not at all. */
export interface TlsFiles {
  /** Certificate authorities; null for the system's. */
  readonly ca: string | null;
  readonly cert: string | null;
  readonly key: string | null;
}

/** A coordinator in NATS. */
export interface NatsOptions {
  readonly kind: "nats";
  /** At least one, each `nats://HOST:PORT`, `tls://HOST:PORT` or `HOST:PORT`, without credentials. */
  readonly urls: readonly string[];
  /** Bucket of the leases, default `leases`; the tenures are in `NAME-tenures`. */
  readonly bucket: string;
  /** Replicas of a bucket made here, 1 to 5; null for the default of the server's kind. */
  readonly replicas: number | null;
  /** Whether a server version with known double-grant faults is used all the same. */
  readonly allowUnsafeServer: boolean;
  readonly credentials: Credentials;
  readonly tls: TlsFiles;
}

/** No coordinator: every store is ours. */
export interface StandaloneOptions {
  readonly kind: "standalone";
  /** Why that is right here; told with each grant. Not empty. */
  readonly reason: string;
}

/** What the daemon is started with. Paths are absolute. */
export interface RunOptions {
  /** This host's unique name: 1 to 128 printable ASCII characters, no blanks. */
  readonly node: string;
  readonly coordinator: NatsOptions | StandaloneOptions;
  /** Where other hosts reach this one, for routing: printable ASCII; null where it was not said. */
  readonly address: string | null;
  /** TTL of the leases in ms; null to adopt the bucket's (15 s where it is made). */
  readonly ttlMs: number | null;
  /** Failover grace in ms; null for the TTL; 0 for none. */
  readonly graceMs: number | null;
  /** A store unasked for so long is released; ms, default 15 min. */
  readonly interestMs: number;
  /** File of stores to hold from the start, one code a line; null for none. */
  readonly storesFile: string | null;
  /** How long grants may finish at the end; ms, default 30 s. */
  readonly drainMs: number;
  readonly socketPath: string;
  /** Whether nobody named that path, so that its directory is the agent's own to make. */
  readonly socketIsDefault: boolean;
  /** Default `/var/lib/zit-agent`. */
  readonly stateDir: string;
  /** Path of a store's lock file, with `{store}` in it; default `/var/lib/zit/{store}/lease.lock`. */
  readonly lockPath: string;
  readonly callers: {
    /** Users that may call; null for whoever the socket's mode lets in. */
    readonly allowUids: readonly number[] | null;
    /** Groups that may call; null as above. */
    readonly allowGids: readonly number[] | null;
    /** Users that may step down; null for root and the agent's own. */
    readonly adminUids: readonly number[] | null;
  };
  readonly limits: {
    /** Connections at a time, default 1,024. */
    readonly maxConnections: number;
    /** Guards waiting at a time, default 10,000. */
    readonly maxWaiters: number;
    /** Grants of one connection at a time, default 1,024. */
    readonly maxGrants: number;
  };
  /** `HOST:PORT` of the metrics and health pages; null for off. */
  readonly httpAddress: string | null;
  readonly log: {
    readonly format: "json" | "text";
    readonly level: "debug" | "info" | "warn" | "error";
  };
  /** What may be a mistake in the settings: a sentence each. */
  readonly warnings: readonly string[];
}
