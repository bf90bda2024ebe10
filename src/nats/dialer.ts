/**
 * Dials the coordinator with the credentials as they are now, and says why it failed.
 * @module
 */
import { type Credentials, readCredentials } from "./credentials.ts";
import { explainDial } from "./dial_failure.ts";
import { Link } from "./link.ts";
import type { Problem } from "./listener.ts";
import { addressOf, type Membership, nameOf } from "./membership.ts";
import type { NatsOptions } from "./options.ts";
import { checkPayload } from "./payload.ts";
import type { Finding } from "./setup_error.ts";

/** Waits between dials double from the first to the last, in milliseconds. */
const WAIT_FIRST_MS = 100;
const WAIT_LAST_MS = 1_000;

/** Dials, one attempt a call. */
export class Dialer {
  readonly #options: NatsOptions & { readonly membership: Membership };
  readonly #tell: (problem: Problem) => void;
  #failures = 0;
  #fingerprint: string | null = null;
  #gossip: readonly string[] = [];

  constructor(
    options: NatsOptions & { readonly membership: Membership },
    tell: (problem: Problem) => void,
  ) {
    this.#options = options;
    this.#tell = tell;
  }

  /**
   * How long to wait before the next dial: a half more or less, so that a fleet does not come back in one
   * moment. In milliseconds.
   */
  get waitMs(): number {
    const doubledMs = WAIT_FIRST_MS * 2 ** Math.min(this.#failures, 10);
    return Math.min(doubledMs, WAIT_LAST_MS) * (0.5 + Math.random());
  }

  /** The connection is of use: the next outage starts with short waits, and with the servers it knows of. */
  succeeded(link: Link): void {
    this.#failures = 0;
    this.#options.membership.used(link);
    this.#gossip = link.nc.info?.connect_urls ?? this.#gossip;
  }

  /** Dials; null where it failed, which was told. */
  async dial(): Promise<Link | null> {
    this.#failures++;
    const credentials = this.#read();
    const link = "check" in credentials ? credentials : await this.#open(credentials);
    if (!("check" in link)) return link;
    this.#tell(link);
    return null;
  }

  /**
   * Dials if the credentials are others than those in use; null where they are not, and a problem,
   * which is not told, where it failed.
   */
  async dialIfChanged(): Promise<Link | Problem | null> {
    const credentials = this.#read();
    if ("check" in credentials) return credentials;
    if (credentials.fingerprint === this.#fingerprint) return null;
    return await this.#open(credentials);
  }

  /**
   * Has the credentials read: whether the next dial could use them.
   *
   * @throws {Error} where they cannot be read
   */
  tryCredentials(): void {
    const credentials = this.#read();
    if ("check" in credentials) throw new Error(credentials.message);
  }

  #read(): Credentials | Problem {
    const { credentials = {}, urls } = this.#options;
    const requireTls = urls.some((url) => /^tls:/i.test(url));
    try {
      return readCredentials(credentials, requireTls);
    } catch (error) {
      const { message } = error as Error;
      return { fatal: false, check: "credentials", topic: message, message };
    }
  }

  async #open(credentials: Credentials): Promise<Link | Problem> {
    const { urls } = this.#options;
    // Servers heard of are addresses, which a certificate may not name.
    let servers = credentials.tls === undefined ? [...new Set([...urls, ...this.#gossip])] : urls;
    let unfit: Finding | null = null;
    while (servers.length > 0) {
      const link = await this.#openOne(credentials, servers);
      if ("check" in link) return unfit === null ? link : unfitProblem(unfit);
      const refusal = checkPayload(link.info, link.server) ??
        await this.#options.membership.refusal(link);
      // One that ended meanwhile was compared with what came after it.
      if (refusal === null || !link.isUp) {
        this.#fingerprint = credentials.fingerprint;
        return link;
      }
      unfit ??= refusal;
      await link.close("the server is not fit");
      servers = without(servers, link.named);
    }
    return unfitProblem(unfit!);
  }

  async #openOne(
    credentials: Credentials,
    servers: readonly string[],
  ): Promise<Link | Problem> {
    const { node, incarnation } = this.#options;
    try {
      const name = `zit-agent ${node} ${incarnation}`;
      return await Link.open({ servers, name, credentials });
    } catch (error) {
      return explainDial(error, servers, this.#options.credentials ?? {});
    }
  }
}

/** The servers but for one; none where that is not among them, since it would be dialled again. */
function without(servers: readonly string[], named: string): readonly string[] {
  const rest = servers.filter((server) => nameOf(addressOf(server)) !== named);
  return rest.length < servers.length ? rest : [];
}

function unfitProblem({ check, message }: Finding): Problem {
  return { fatal: false, check, topic: check, message };
}
