/**
 * Why no server could be connected to, in words that lead whoever reads them to the remedy.
 * @module
 */
import type { Problem } from "./listener.ts";
import type { CredentialFiles } from "./options.ts";
import { type Attempt, DialError } from "./transport.ts";

/** What failed, and what to do about it. */
interface Diagnosis {
  readonly check: "authentication" | "tls" | "name" | "protocol" | "connection";
  /** After "Cannot connect to the coordinator at …: ". */
  readonly words: string;
}

/** Of several servers that fail, the one is told that fails for the reason that least mends itself. */
const RANKS: readonly Diagnosis["check"][] = [
  "authentication",
  "tls",
  "protocol",
  "name",
  "connection",
];

/**
 * Explains a dial that failed at every server: at those of `urls`, as whoever reads this knows them, and at
 * those that they told of; `files` are those that were given.
 */
export function explainDial(
  error: unknown,
  urls: readonly string[],
  files: CredentialFiles,
): Problem {
  const attempts = attemptsOf(error, urls);
  const [{ attempt, check, words }] = attempts
    .map((attempt) => ({ attempt, ...diagnose(attempt, files) }))
    .sort((a, b) => RANKS.indexOf(a.check) - RANKS.indexOf(b.check));
  const which = urls.length > 1 || attempts.length > 1 ? `${attempt.server}: ` : "";
  return {
    fatal: false,
    check,
    // Once in an outage, whichever way the network, the server and its words for it change.
    topic: check === "connection" || check === "authentication" ? check : which + words,
    message: `Cannot connect to the coordinator at ${urls.join(", ")}: ${which}${words}`,
  };
}

/** None is made where a name does not resolve: then it is as if one had failed for that. */
function attemptsOf(error: unknown, urls: readonly string[]): readonly Attempt[] {
  const attempts = error instanceof DialError ? error.attempts : [];
  if (attempts.length > 0) return attempts;
  const cause = error instanceof DialError ? error.cause : error;
  const failure = cause instanceof Error ? cause : null;
  return [{ server: urls.join(" or "), accepted: false, greeting: null, failure }];
}

/** What is told of a connection that ended without our doing. */
export function connectionLost(reason: string): Problem {
  return {
    fatal: false,
    check: "connection",
    topic: "connection",
    message: `Connection to the coordinator lost: ${reason}. It is dialled again and again; if ` +
      "this lasts, `agent --check` and the nats-server's log have the reason of the newest failure",
  };
}

/** A certificate that nobody vouches for whom we trust, as OpenSSL and its like call it. */
const UNTRUSTED = new Set([
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "CERT_UNTRUSTED",
]);

const NO_NAME = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EAI_NODATA", "EAI_NONAME"]);
const NO_WAY = new Set(["EHOSTUNREACH", "ENETUNREACH", "EHOSTDOWN", "ENETDOWN", "ETIMEDOUT"]);

function diagnose(attempt: Attempt, files: CredentialFiles): Diagnosis {
  const { failure, greeting } = attempt;
  const { code = "", name } = (failure ?? {}) as { code?: string; name?: string };
  if (name === "AuthorizationError" || name === "UserAuthenticationExpiredError") {
    return authentication(failure!.message, files);
  }
  if (greeting !== null) return tlsFailure(attempt, code, files) ?? plain(attempt);
  if (NO_NAME.has(code)) {
    return {
      check: "name",
      words: `its name does not resolve (${code}). Correct --nats, or see to this host's DNS and ` +
        "/etc/hosts; tried again meanwhile",
    };
  }
  return plain(attempt);
}

function authentication(why: string, files: CredentialFiles): Diagnosis {
  const given = files.creds ?? files.nkey ?? files.passwordFile;
  return {
    check: "authentication",
    words: given === undefined
      ? `it demands credentials (${why}), and none were given. Give --creds, --nkey, or --user and ` +
        "--password-file"
      : `it refuses our credentials (${why}): put the right ones into ${given}, which is read at ` +
        "each try",
  };
}

/** What can fail once the server has said what it is; null: nothing to do with TLS. */
function tlsFailure(
  { greeting, failure, server }: Attempt,
  code: string,
  files: CredentialFiles,
): Diagnosis | null {
  const { tls_required: required, tls_available: offered, tls_verify: wantsOurs } = greeting!;
  if (/does not support 'tls'/.test(failure?.message ?? "")) return tls(NOT_OFFERED);
  if (!required && !offered) return null;
  if (UNTRUSTED.has(code)) {
    const remedy = files.tlsCa === undefined
      ? "Give the certificate of that authority by --tls-ca"
      : `Put the certificate of that authority into ${files.tlsCa} (--tls-ca), which is read at ` +
        "each try";
    return tls(
      `its certificate is of an authority that this agent does not trust (${code}). ${remedy}`,
    );
  }
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return tls(
      `its certificate is for other names than ${
        server.replace(/:\d+$/, "")
      }. Name the server in ` +
        "--nats as its certificate does, or have a certificate made for that name",
    );
  }
  if (code === "CERT_HAS_EXPIRED" || code === "CERT_NOT_YET_VALID") {
    const how = code === "CERT_HAS_EXPIRED" ? "has expired" : "is not valid yet";
    return tls(
      `its certificate ${how}. Renew it on the nats-server, or set this host's clock right`,
    );
  }
  const timedOut = failure?.name === "TimeoutError";
  if (wantsOurs && !timedOut) {
    return tls(files.tlsCert === undefined ? OURS_WANTED : oursRefused(files));
  }
  return code === "" || timedOut || HUNG_UP.has(code) ? null : tls(
    `TLS could not be agreed upon (${code}). See the tls block of the nats-server, and its log`,
  );
}

const NOT_OFFERED =
  "it offers no TLS, which tls:// in --nats and the --tls-… flags demand. Have TLS " +
  "set up there (tls in its configuration), or use nats:// and none of these flags";

const OURS_WANTED =
  "it demands a certificate of ours, and none was given. Give one by --tls-cert, " +
  "and its key by --tls-key";

function oursRefused({ tlsCert }: CredentialFiles): string {
  return `it ends the connection after it has seen our certificate ${tlsCert} (--tls-cert), so it seems ` +
    "not to accept it. That must be of the authority in the server's ca_file, be valid now, and be made " +
    "for clients; the server's log says what it lacks";
}

function tls(words: string): Diagnosis {
  return { check: "tls", words };
}

/** What has nothing to do with TLS: the network, the server's state, or that it is no nats-server. */
function plain({ failure, accepted, greeting }: Attempt): Diagnosis {
  const { code = "", name } = (failure ?? {}) as { code?: string; name?: string };
  const message = failure?.message ?? "";
  if (/unexpected response|attempted to connect to .* port/.test(message)) {
    return {
      check: "protocol",
      words:
        "what answers there is no nats-server, or not its port for clients. Correct host and " +
        "port in --nats (4222 by default)",
    };
  }
  if (accepted && (HUNG_UP.has(code) || /^$|undefined error|closed/.test(message))) {
    return connection(greeting === null ? HANGS_UP : HANGS_UP_LATER);
  }
  if (name === "TimeoutError" && accepted && greeting === null) return connection(SILENT);
  const why = NO_WAY.has(code)
    ? `no way leads there (${code}). See this host's network and the firewalls between`
    : name === "TimeoutError"
    ? `no answer in time (timeout). See whether it hangs, and the network and firewalls between`
    : `${message || "it closed the connection"}. See whether a nats-server runs there and can be ` +
      "reached from this host";
  return connection(`${why}; tried again meanwhile`);
}

/** What a connection is ended by from the other side. */
const HUNG_UP = new Set(["ECONNRESET", "EPIPE", "EBADF"]);

const HANGS_UP =
  "it takes connections and closes them at once. See whether that is the port of a " +
  "nats-server for clients, and its log; tried again meanwhile";

const HANGS_UP_LATER =
  "it greets and then closes the connection. Its log says why: this is not its " +
  "port for clients, or it has as many connections as it takes (max_connections); tried again meanwhile";

/** It waits for us, or for nobody: nothing tells these apart. */
const SILENT =
  "it takes connections and says nothing (timeout). It hangs; or it is no nats-server " +
  "but, say, the port of its monitoring; or it awaits TLS first, which agents do not begin with " +
  '(set handshake_first to "auto" there); tried again meanwhile';

function connection(words: string): Diagnosis {
  return { check: "connection", words };
}
