/**
 * Reads credential files into what the client library takes.
 * @module
 */
import { createHash, createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  type Authenticator,
  credsAuthenticator,
  nkeyAuthenticator,
  type TlsOptions,
  usernamePasswordAuthenticator,
} from "@nats-io/transport-node";
import { reasonOf } from "../sys/errno.ts";
import type { CredentialFiles } from "./options.ts";

/** Credentials as read. */
export interface Credentials {
  readonly authenticators: Authenticator[];
  /** Undefined: TLS only if the server demands it. */
  readonly tls?: TlsOptions;
  /** Tells whether the files changed. */
  readonly fingerprint: string;
}

/** Why credentials cannot be used: a file cannot be read, or is not what it should be. */
export class CredentialsError extends Error {
  override readonly name = "CredentialsError";
}

/**
 * Reads the files.
 *
 * @param requireTls whether a URL demands TLS, also where there is no file for it
 * @throws {CredentialsError}
 */
export function readCredentials(files: CredentialFiles, requireTls: boolean): Credentials {
  const hash = createHash("sha256");
  const read = (path: string): Buffer => {
    const content = readFile(path);
    hash.update(`${path}\0${content.length}\0`).update(content);
    return content;
  };
  const authenticators = readAuthenticators(files, read);
  const tls = readTls(files, read);
  return {
    authenticators,
    tls: tls ?? (requireTls ? {} : undefined),
    fingerprint: hash.digest("hex"),
  };
}

type Reader = (path: string) => Buffer;

function readAuthenticators(files: CredentialFiles, read: Reader): Authenticator[] {
  const authenticators: Authenticator[] = [];
  if (files.creds !== undefined) {
    const content = read(files.creds);
    authenticators.push(proven(credsAuthenticator(content), files.creds, "a credentials file"));
  }
  if (files.nkey !== undefined) {
    const seed = Buffer.from(read(files.nkey).toString("utf8").trim());
    authenticators.push(proven(nkeyAuthenticator(seed), files.nkey, "an nkey seed"));
  }
  if (files.user !== undefined) {
    if (files.passwordFile === undefined) {
      throw new CredentialsError(`The user ${files.user} has no password file (--password-file)`);
    }
    // Editors end files with a line break, which no password means.
    const password = read(files.passwordFile).toString("utf8").replace(/\r?\n$/, "");
    authenticators.push(usernamePasswordAuthenticator(files.user, password));
  }
  return authenticators;
}

function readTls(files: CredentialFiles, read: Reader): TlsOptions | undefined {
  const { tlsCa, tlsCert, tlsKey } = files;
  if (tlsCa === undefined && tlsCert === undefined && tlsKey === undefined) return undefined;
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw new CredentialsError("A TLS certificate needs its key, and a key its certificate");
  }
  const text = (path?: string) => path === undefined ? undefined : read(path).toString("utf8");
  const tls = { ca: text(tlsCa), cert: text(tlsCert), key: text(tlsKey) };
  if (tls.ca !== undefined) parsed(`${tlsCa} (--tls-ca) is no certificate in PEM`, tls.ca);
  if (tls.cert === undefined || tls.key === undefined) return tls;
  const cert = parsed(`${tlsCert} (--tls-cert) is no certificate in PEM`, tls.cert);
  if (!cert.checkPrivateKey(keyOf(tlsKey!, tls.key))) {
    throw new CredentialsError(`${tlsKey} (--tls-key) is not the key of ${tlsCert} (--tls-cert)`);
  }
  return tls;
}

/** Here, so that words name the file: TLS would fail with a number of its library. */
function parsed(why: string, pem: string): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch {
    throw new CredentialsError(`${why}; put a certificate into it`);
  }
}

function keyOf(path: string, pem: string): KeyObject {
  try {
    return createPrivateKey(pem);
  } catch {
    throw new CredentialsError(
      `${path} (--tls-key) is no private key in PEM, or needs a passphrase; put one without into it`,
    );
  }
}

function readFile(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new CredentialsError(
      `Cannot read ${path}: ${reasonOf(error)}; correct its path, or who may read it`,
    );
  }
}

/** Tries it once: the client library closes a connection for good when an authenticator throws. */
function proven(authenticator: Authenticator, path: string, what: string): Authenticator {
  try {
    authenticator("a-nonce");
  } catch {
    throw new CredentialsError(`${path} is not ${what}`);
  }
  return authenticator;
}
