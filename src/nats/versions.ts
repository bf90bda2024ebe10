/**
 * Which nats-servers are refused or warned about, and for which fault.
 * @module
 */
import { type Finding, SetupError } from "./setup_error.ts";

type Version = readonly [major: number, minor: number, patch: number];

/** nats-server#4320: in a cluster, concurrent writes that expect one revision may all be accepted. */
const OLDEST_SAFE: Version = [2, 9, 21];
/** This one release broke compare-and-set writes of R1 streams; 2.10.20 mended them. */
const BROKEN: Version = [2, 10, 19];
const FIRST_SEQ_SINCE: Version = [2, 10, 0];
/** Older ones have known ways to lose acknowledged writes. */
const OLDEST_GOOD: Version = [2, 12, 14];
/** The same in the 2.14 series. */
const OLDEST_GOOD_2_14: Version = [2, 14, 4];

/**
 * Judges the version of the server we are connected to. Other members of a cluster are judged when
 * we are connected to them: their versions are not told to clients.
 *
 * @returns a warning, or null for a version without known faults
 * @throws {SetupError} `server_version`: known to grant twice, and not `allowUnsafe`
 */
export function checkServerVersion(text: string, allowUnsafe: boolean): Finding | null {
  const fault = doubleGrantFault(text);
  if (fault !== null && !allowUnsafe) {
    throw new SetupError(
      "server_version",
      `${fault}. Upgrade it (2.12.14 or newer), or accept the risk with --allow-unsafe-server`,
    );
  }
  if (fault !== null) {
    return { check: "server_version", message: `${fault} (accepted). Upgrade it all the same` };
  }
  const version = parse(text);
  if (version === null || !hasKnownFaults(version)) return null;
  return {
    check: "server_version",
    message: `nats-server ${text} can lose acknowledged writes: upgrade it to 2.12.14 ` +
      `(2.14.4 in the 2.14 series) or newer`,
  };
}

/** Whether a server of this version can start a stream at another sequence than 1. */
export function startsAnywhere(text: string): boolean {
  const version = parse(text);
  return version !== null && !before(version, FIRST_SEQ_SINCE);
}

function doubleGrantFault(text: string): string | null {
  const version = parse(text);
  if (version === null) return `nats-server calls itself version "${text}", which cannot be judged`;
  if (before(version, OLDEST_SAFE)) {
    return `nats-server ${text} can accept two compare-and-set writes of one revision ` +
      `in a cluster (nats-server#4320, mended in 2.9.21), so two nodes could hold one store`;
  }
  if (!before(version, BROKEN) && !before(BROKEN, version)) {
    return `nats-server ${text} judges compare-and-set writes of R1 buckets wrongly (mended in ` +
      `2.10.20), so two nodes could hold one store`;
  }
  return null;
}

function hasKnownFaults(version: Version): boolean {
  if (before(version, OLDEST_GOOD)) return true;
  return version[0] === 2 && version[1] === 14 && before(version, OLDEST_GOOD_2_14);
}

/** A pre-release counts as its release: what it mends it mends already. */
function parse(text: string): Version | null {
  const match = /^v?(\d+)\.(\d+)\.(\d+)/.exec(text);
  return match === null ? null : [Number(match[1]), Number(match[2]), Number(match[3])];
}

function before(a: Version, b: Version): boolean {
  for (let i = 0; i < a.length; i++) {
    if (a[i] !== b[i]) return a[i] < b[i];
  }
  return false;
}
