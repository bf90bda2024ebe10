/**
 * What the server does not let this agent's user do, found out by trying it, and when it may again.
 * @module
 */
import type { MsgHdrs, NatsConnection } from "@nats-io/transport-node";
import type { Finding } from "./setup_error.ts";
import { tenuresOf } from "./stream_config.ts";
import { keyPrefix, readSubject } from "./wire.ts";

/** Something that the server just refused to do for us. */
export interface Denial {
  readonly operation: "publish" | "subscription";
  readonly subject: string;
}

/** What is denied under names that differ from time to time, and what is to be allowed for them. */
const PERMISSIONS = ["_INBOX.", "$JS.API.CONSUMER.CREATE.", "$JS.API.CONSUMER.DELETE.", "$JS.FC."];

/** The permission that a denial asks for, as it is written into a server's configuration. */
function permissionOf(subject: string): string {
  const family = PERMISSIONS.find((prefix) => subject.startsWith(prefix));
  return family === undefined ? subject : `${family}>`;
}

/** A denial in words, the same however often it comes, and with what to do. */
export function explainDenial({ operation, subject }: Denial): string {
  const what = `${operation === "publish" ? "publish" : "subscribe"} to ${permissionOf(subject)}`;
  return `the coordinator does not let this agent's user ${what}; allow it in the nats-server's ` +
    "configuration";
}

/** How long a probe's answer is awaited; one that does not come says nothing. In milliseconds. */
const PROBE_TIMEOUT_MS = 1_500;

/** How many subjects a message names. */
const MAX_NAMED = 3;
/** …and are kept, of each sort. */
const MAX_KEPT = 100;

/** The key that is probed. No store can have this name, and no program reads it. */
const PROBE_KEY = "=probe";

/**
 * Makes a write that no server can accept, for two reasons: it is for a stream of another name, and it
 * expects a revision that no key ever has. So it stores nothing, and answers whether it may be sent.
 */
const IMPOSSIBLE = new TextEncoder().encode(
  "NATS/1.0\r\nNats-Expected-Stream: no-stream-has-this-name\r\n" +
    `Nats-Expected-Last-Subject-Sequence: ${Number.MAX_SAFE_INTEGER}\r\n\r\n`,
);

/** Headers as the library takes them: it asks for their bytes alone. */
const IMPOSSIBLE_HEADERS = { encode: () => IMPOSSIBLE } as unknown as MsgHdrs;

/** Something that an agent cannot do without. */
interface Need {
  /** The permission, as it is written into a server's configuration. */
  readonly subject: string;
  /** What becomes of it without. */
  readonly without: string;
  /** Whether a subject falls under it. */
  covers(subject: string): boolean;
  readonly probe: { readonly subject: string; readonly payload: string; readonly write: boolean };
  /** Whether its probe was denied when it was tried last. */
  denied: boolean;
  /** Subjects under it that were denied to requests, and not allowed since. */
  readonly subjects: Set<string>;
}

/** What is denied on the connections to one coordinator. */
export class Denials {
  readonly #needs: readonly Need[];
  readonly #tell: (finding: Finding | null, news: boolean) => void;
  #told: string | undefined = undefined;
  /** The permissions that are lacking, as told last. */
  #lacking = "";
  /** Nothing is told before all is known. */
  #probing = false;

  /** @param tell called with each new {@linkcode finding}; `news`: not only in other words */
  constructor(bucket: string, tell: (finding: Finding | null, news: boolean) => void) {
    this.#tell = tell;
    const tenures = tenuresOf(bucket);
    this.#needs = [
      write(bucket, "no lease can be acquired, renewed or released"),
      write(tenures, "no tenure can be recorded, so nothing can be granted"),
      read(bucket, "nobody can be told who holds a store"),
      read(tenures, "no tenure can be read, so nothing can be granted"),
    ];
  }

  /** What is denied now, in words; null where nothing is. */
  get finding(): Finding | null {
    const denied = this.#denied();
    if (denied.length === 0) return null;
    const what = denied.map((need) => `${named(need)} (${need.without})`).join(" and ");
    const grant = denied.map(({ subject }) => subject).join(", ");
    return {
      check: "permissions",
      message: `The coordinator does not let this agent's user publish to ${what}; allow ` +
        `it publishing to ${grant} in the nats-server's configuration`,
    };
  }

  /** Why a request on the subject fails, in words; notes it. */
  note(denial: Denial): string {
    const { operation, subject } = denial;
    const need = operation === "publish" && this.#needs.find((each) => each.covers(subject));
    if (need && need.subjects.size < MAX_KEPT) need.subjects.add(subject);
    this.#tellNews();
    return explainDenial(denial);
  }

  /**
   * A request on the subject was answered, so it is allowed. Returns whether that is news, after which
   * all had better be tried again.
   */
  allow(subject: string): boolean {
    let news = false;
    let doubtful = false;
    for (const { subjects, denied, covers } of this.#needs) {
      if (subjects.size > 0 && subjects.delete(subject)) news = true;
      if (denied && covers(subject)) doubtful = true;
    }
    if (news) this.#tellNews();
    return news || doubtful;
  }

  /** A new connection: what was denied to requests on the old one may be allowed on it. */
  begin(): void {
    for (const { subjects } of this.#needs) subjects.clear();
  }

  /** Tries everything that is needed. Nothing that it sends is stored. */
  async probe(nc: NatsConnection): Promise<void> {
    this.#probing = true;
    await Promise.all(this.#needs.map(async (need) => {
      const denied = await isDenied(nc, need.probe);
      if (denied === null) return;
      // Allowed again as a whole: so are the subjects that were denied when it was not.
      if (need.denied && !denied) need.subjects.clear();
      if (!denied) need.subjects.delete(need.probe.subject);
      need.denied = denied;
    }));
    this.#probing = false;
    this.#tellNews();
  }

  #denied(): Need[] {
    return this.#needs.filter((need) => need.denied || need.subjects.size > 0);
  }

  #tellNews(): void {
    const { finding } = this;
    if (this.#probing || finding?.message === this.#told) return;
    this.#told = finding?.message;
    // First a request is denied, then the probe finds out that all like it are.
    const lacking = this.#denied().map(({ subject }) => subject).join();
    const news = lacking !== this.#lacking;
    this.#lacking = lacking;
    this.#tell(finding, news);
  }
}

function write(bucket: string, without: string): Need {
  const prefix = keyPrefix(bucket);
  return {
    subject: prefix + ">",
    without,
    covers: (subject) => subject.startsWith(prefix),
    probe: { subject: prefix + PROBE_KEY, payload: "", write: true },
    denied: false,
    subjects: new Set(),
  };
}

function read(bucket: string, without: string): Need {
  const subject = readSubject(bucket);
  const payload = `{"last_by_subj":"${keyPrefix(bucket)}${PROBE_KEY}"}`;
  return {
    subject,
    without,
    covers: (other) => other === subject,
    probe: { subject, payload, write: false },
    denied: false,
    subjects: new Set(),
  };
}

function named({ denied, subject, subjects }: Need): string {
  if (denied) return subject;
  const more = subjects.size > MAX_NAMED ? ` and ${subjects.size - MAX_NAMED} more` : "";
  return [...subjects].slice(0, MAX_NAMED).join(", ") + more;
}

/** Whether the server denies it; null where it does not say. */
async function isDenied(
  nc: NatsConnection,
  { subject, payload, write }: Need["probe"],
): Promise<boolean | null> {
  try {
    await nc.request(subject, payload, {
      timeout: PROBE_TIMEOUT_MS,
      ...(write ? { headers: IMPOSSIBLE_HEADERS } : {}),
    });
    return false;
  } catch (error) {
    const { name, cause } = error as { name?: string; cause?: { name?: string } };
    const violation = "PermissionViolationError";
    if (name === violation || cause?.name === violation) return true;
    // Nobody listens there now, which a server tells only those who may publish there.
    return name === "NoRespondersError" || cause?.name === "NoRespondersError" ? false : null;
  }
}
