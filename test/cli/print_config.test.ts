import { expect, test } from "bun:test";
import { FlagValues, type RawFlags } from "../../src/cli/flag_values.ts";
import { settingsOf } from "../../src/cli/print_config.ts";
import { FLAGS, twinOf } from "../../src/cli/run_flags.ts";
import { runOptionsOf } from "../../src/cli/parse_run_options.ts";

/** A value of each flag that is not its default, and what else has to be said with it. */
const VALUES: Readonly<
  Record<string, string | readonly [string, Readonly<Record<string, string>>]>
> = {
  nats: "nats://n1:4222,nats://n2:4222",
  standalone: "a reason",
  bucket: "others",
  replicas: "5",
  creds: "/c",
  nkey: "/n",
  user: ["u", { "password-file": "/p" }],
  "password-file": ["/p", { user: "u" }],
  "tls-ca": "/ca",
  "tls-cert": ["/cert", { "tls-key": "/key" }],
  "tls-key": ["/key", { "tls-cert": "/cert" }],
  "allow-unsafe-server": "1",
  ttl: "20s",
  grace: "1m30s",
  interest: "1h",
  stores: "/stores",
  drain: "0",
  node: "host-9",
  address: "http://host-9",
  "state-dir": "/state",
  "lock-path": "/locks/{store}",
  socket: "/socket",
  "allow-uid": "1,2",
  "allow-gid": "3",
  "admin-uid": "4,5",
  "max-connections": "10",
  "max-waiters": "11",
  "max-grants": "12",
  http: "127.0.0.1:9464",
  "log-format": "text",
  "log-level": "debug",
};

function settings(raw: RawFlags, env: Record<string, string>) {
  const flags = new FlagValues(raw, env);
  const options = runOptionsOf(flags, { env, socketPath: "/default.sock" });
  return new Map(settingsOf(options, flags).map((each) => [each.name, each]));
}

/** Without these no agent runs. */
const MINIMUM = { nats: "nats://n1:4222", node: "host-1" };

test.each(FLAGS.map(({ name }) => [name]))(
  "settingsOf() tells the value of --%s, and whether flag or variable gave it",
  (name) => {
    const entry = VALUES[name]!;
    const [value, others] = typeof entry === "string" ? [entry, {}] : entry;
    const given = { ...name === "standalone" ? {} : MINIMUM, ...others, [name]: value };
    const byFlag = settings(given, {});
    expect(byFlag.get(name)).toEqual({ name, value, source: `--${name}` });
    const env = Object.fromEntries(Object.entries(given).map(([key, text]) => [twinOf(key), text]));
    expect(settings({}, env).get(name)).toEqual({ name, value, source: twinOf(name) });
    expect(settings(given, { [twinOf(name)]: "never looked at" }).get(name)?.source)
      .toBe(`--${name}`);
    if (name in MINIMUM) return;
    const bare = settings(MINIMUM, {}).get(name)!;
    expect(bare.source).toBe("default");
    expect(bare.value).not.toBe(value);
  },
);
