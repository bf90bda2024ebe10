/** `agent run --print-config`: each setting, and where it came from. */
import { formatDuration } from "./duration.ts";
import type { FlagValues } from "./flag_values.ts";
import { print, printJson, say, table } from "./output.ts";
import { FLAGS } from "./run_flags.ts";
import type { RunOptions } from "./run_options.ts";

/** A setting of `agent run` as it is in force. */
export interface Setting {
  /** The flag's name, without dashes. */
  readonly name: string;
  /** As it would be written on the command line; null: not set, and there is no default. */
  readonly value: string | null;
  /** `--ttl`, `ZIT_AGENT_TTL`, a systemd credential, or `default`. */
  readonly source: string;
}

/** All settings, in the order of help. Files with secrets are named, not shown. */
export function settingsOf(options: RunOptions, flags: FlagValues): Setting[] {
  const values = valuesOf(options);
  return FLAGS.map(({ name }) => ({
    name,
    value: values[name] ?? null,
    source: flags.isGiven(name) ? flags.sourceOf(name) : "default",
  }));
}

/** Prints them all. */
export function printSettings(options: RunOptions, flags: FlagValues, json: boolean): void {
  const settings = settingsOf(options, flags);
  if (json) return printJson({ settings, warnings: options.warnings });
  const rows = settings.map(({ name, value, source }) => [name, value ?? "-", source]);
  for (const line of table([["SETTING", "VALUE", "FROM"], ...rows])) print(line);
  for (const warning of options.warnings) say(warning);
}

/** Null where nothing is set: what that means is in the help of the flag. */
function valuesOf(options: RunOptions): Record<string, string | null> {
  const { coordinator, callers, limits, log } = options;
  const nats = coordinator.kind === "nats" ? coordinator : null;
  const ids = (list: readonly number[] | null) => list?.join(",") ?? null;
  const duration = (ms: number | null) => ms === null ? null : formatDuration(ms);
  return {
    nats: nats?.urls.join(",") ?? null,
    standalone: coordinator.kind === "standalone" ? coordinator.reason : null,
    bucket: nats?.bucket ?? null,
    replicas: nats?.replicas?.toString() ?? null,
    creds: nats?.credentials.creds ?? null,
    nkey: nats?.credentials.nkey ?? null,
    user: nats?.credentials.user?.name ?? null,
    "password-file": nats?.credentials.user?.passwordFile ?? null,
    "tls-ca": nats?.tls.ca ?? null,
    "tls-cert": nats?.tls.cert ?? null,
    "tls-key": nats?.tls.key ?? null,
    "allow-unsafe-server": nats === null ? null : nats.allowUnsafeServer ? "1" : "0",
    ttl: duration(options.ttlMs),
    grace: duration(options.graceMs),
    interest: duration(options.interestMs),
    stores: options.storesFile,
    drain: duration(options.drainMs),
    node: options.node,
    address: options.address,
    "state-dir": options.stateDir,
    "lock-path": options.lockPath,
    socket: options.socketPath,
    "allow-uid": ids(callers.allowUids),
    "allow-gid": ids(callers.allowGids),
    "admin-uid": ids(callers.adminUids),
    "max-connections": String(limits.maxConnections),
    "max-waiters": String(limits.maxWaiters),
    "max-grants": String(limits.maxGrants),
    http: options.httpAddress,
    "log-format": log.format,
    "log-level": log.level,
  };
}
