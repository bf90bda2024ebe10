/**
 * An operator of NATS accounts for tests of credentials: JWTs signed with nkeys.
 * @module
 */
import { createHash } from "node:crypto";
import { nkeys } from "@nats-io/transport-node";

type KeyPair = ReturnType<typeof nkeys.createOperator>;

/** What an account may use of NATS: -1 is all. JetStream is off unless it is given. */
const ALL = { subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true };
const LIMITS = { ...ALL, conn: -1, leaf: -1 };
const JETSTREAM = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };

/** An operator with a system account and one account with JetStream. */
export class Operator {
  readonly #operator = nkeys.createOperator();
  readonly #system = nkeys.createAccount();
  readonly #account = nkeys.createAccount();

  /** Lines for the configuration of a server that trusts this operator. */
  config(): string {
    const operator = jwt(this.#operator, this.#operator, { type: "operator" });
    const account = (key: KeyPair, limits: object) =>
      jwt(this.#operator, key, { type: "account", limits });
    return [
      `operator: ${operator}`,
      `system_account: ${this.#system.getPublicKey()}`,
      "resolver: MEMORY",
      "resolver_preload {",
      `  ${this.#system.getPublicKey()}: ${account(this.#system, LIMITS)}`,
      `  ${this.#account.getPublicKey()}: ${account(this.#account, { ...LIMITS, ...JETSTREAM })}`,
      "}",
    ].join("\n");
  }

  /** The contents of a credentials file of a user; `expiresInS` seconds from now where given. */
  creds(expiresInS?: number): string {
    const user = nkeys.createUser();
    const expiry = expiresInS === undefined
      ? {}
      : { exp: Math.floor(Date.now() / 1_000) + expiresInS };
    const token = jwt(
      this.#account,
      user,
      { type: "user", subs: -1, data: -1, payload: -1 },
      expiry,
    );
    const seed = new TextDecoder().decode(user.getSeed());
    return [
      "-----BEGIN NATS USER JWT-----",
      token,
      "------END NATS USER JWT------",
      "",
      "-----BEGIN USER NKEY SEED-----",
      seed,
      "------END USER NKEY SEED------",
      "",
    ].join("\n");
  }
}

function jwt(signer: KeyPair, subject: KeyPair, nats: object, more: object = {}): string {
  const claims = {
    iat: Math.floor(Date.now() / 1_000),
    iss: signer.getPublicKey(),
    sub: subject.getPublicKey(),
    name: "test",
    ...more,
    nats: { ...nats, version: 2 },
  };
  const jti = createHash("sha256").update(JSON.stringify(claims)).digest("hex");
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ typ: "JWT", alg: "ed25519-nkey" })}.${part({ jti, ...claims })}`;
  const signature = signer.sign(new TextEncoder().encode(signed));
  return `${signed}.${Buffer.from(signature).toString("base64url")}`;
}
