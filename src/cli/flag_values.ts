/**
 * From what was written on the command line and in the environment to typed values of flags.
 * @module
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { parseDurationMs } from "./duration.ts";
import { usage } from "./failure.ts";
import { FLAGS, twinOf } from "./run_flags.ts";
import type { Flag } from "./run_flags.ts";

/** What the unit calls the NATS credentials that systemd passes. */
const CREDENTIAL = "zit-agent.creds";

/** Where a value was written, for error messages: `--ttl` or `ZIT_AGENT_TTL`. */
interface Written {
  readonly source: string;
  readonly texts: readonly string[];
}

/** What commander hands over: a text, the texts of a repeated flag, or true for a switch. */
export type RawFlags = Readonly<Record<string, string | readonly string[] | boolean | undefined>>;
/** The environment. */
export type Env = Readonly<Record<string, string | undefined>>;

/** Typed access to the values of flags; each getter returns null where nothing was given. */
export class FlagValues {
  readonly #written = new Map<string, Written>();

  /** Takes `raw` by flag name without dashes; `env` fills in what was not given there. */
  constructor(raw: RawFlags, env: Env) {
    for (const flag of FLAGS) {
      const written = fromCommandLine(flag, raw[flag.name]) ?? fromEnvironment(flag, env);
      if (written !== null) this.#written.set(flag.name, written);
    }
    const passed = credentialOf(env);
    const authenticates = ["creds", "nkey", "user", "standalone"].some((name) =>
      this.isGiven(name)
    );
    if (passed !== null && !authenticates) this.#written.set("creds", passed);
  }

  /** Whether the flag was given in some way. */
  isGiven(name: string): boolean {
    return this.#written.has(name);
  }

  /** How the flag was given, for messages: the flag or its environment twin. */
  sourceOf(name: string): string {
    return this.#written.get(name)?.source ?? `--${name}`;
  }

  /** The text of a flag. An empty one is an error: it is mostly a variable that was not set. */
  text(name: string): string | null {
    const written = this.#written.get(name);
    if (written === undefined) return null;
    const text = written.texts[0]!;
    if (text.trim() === "") {
      throw usage(`${written.source} is empty: give it a value or leave it out.`);
    }
    return text;
  }

  /** The values of a repeatable flag, split at commas. */
  list(name: string): readonly string[] | null {
    const written = this.#written.get(name);
    if (written === undefined) return null;
    const items = written.texts.flatMap((text) => text.split(",")).map((item) => item.trim());
    if (items.includes("")) {
      throw usage(`${written.source} has an empty item: separate the items by single commas.`);
    }
    return items;
  }

  /** A duration in milliseconds. */
  durationMs(name: string): number | null {
    const text = this.text(name);
    if (text === null) return null;
    try {
      return parseDurationMs(text);
    } catch (error) {
      throw usage(`${this.sourceOf(name)}: ${(error as Error).message}.`);
    }
  }

  /** A whole number from 1 to `max`. */
  count(name: string, max: number): number | null {
    const text = this.text(name);
    if (text === null) return null;
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < 1 || value > max) {
      throw usage(`${this.sourceOf(name)} must be a whole number from 1 to ${max}, not "${text}".`);
    }
    return value;
  }

  /** Numeric user or group ids. */
  ids(name: string): readonly number[] | null {
    // 2^32 - 1 is the kernel's "no id".
    const max = 2 ** 32 - 2;
    return this.list(name)?.map((text) => {
      if (/^\d+$/.test(text) && Number(text) <= max) return Number(text);
      throw usage(`${this.sourceOf(name)} takes numeric ids (see \`id\`), not "${text}".`);
    }) ?? null;
  }

  /** Whether a switch is on. */
  isOn(name: string): boolean {
    const written = this.#written.get(name);
    if (written === undefined) return false;
    const text = written.texts[0]!.toLowerCase();
    if (["1", "true", "yes", "on"].includes(text)) return true;
    if (["0", "false", "no", "off"].includes(text)) return false;
    throw usage(`${written.source} must be 1 or 0, not "${text}".`);
  }

  /** One of a few words. */
  oneOf<T extends string>(name: string, words: readonly T[]): T | null {
    const text = this.text(name);
    if (text === null) return null;
    const word = words.find((each) => each === text);
    if (word !== undefined) return word;
    throw usage(`${this.sourceOf(name)} must be ${words.join(" or ")}, not "${text}".`);
  }
}

function fromCommandLine(flag: Flag, raw: RawFlags[string]): Written | null {
  if (raw === undefined || raw === false) return null;
  const texts = raw === true ? ["1"] : typeof raw === "string" ? [raw] : raw;
  return { source: `--${flag.name}`, texts };
}

/** The file that systemd passes for `LoadCredential=`, if it does. */
function credentialOf({ CREDENTIALS_DIRECTORY: directory }: Env): Written | null {
  if (!directory) return null;
  const path = join(directory, CREDENTIAL);
  return existsSync(path) ? { source: `systemd credential ${CREDENTIAL}`, texts: [path] } : null;
}

/** A variable that is set but empty counts as not set: so one leaves a line of a file blank. */
function fromEnvironment(flag: Flag, env: Env): Written | null {
  const source = twinOf(flag.name);
  const text = env[source];
  if (text === undefined || text === "") return null;
  return { source, texts: flag.takes === "several" ? text.split(",") : [text] };
}
