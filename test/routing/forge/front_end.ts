/**
 * A tiny forge's front end, one on each host: takes writes by HTTP, makes them where the store is
 * held, and never loses or doubles one.
 *
 *   POST /STORE?id=ID   appends the body to the store's log, once for each ID; answers where it stands
 *   GET /STORE          the log's ids, one a line
 *   GET /STORE?id=ID    the body of one
 *
 * Four rules, each of a few lines, make it so:
 *
 * 1. Whoever is asked tries the local guard first. Not the holder: pass the write on to the address
 *    that the refusal names, but once, since routes can be behind the truth.
 * 2. What may pass is tried again, by the client, too: every write has an id of its client's choosing,
 *    and the log says which ids it has. A repeated write is answered, not made again.
 * 3. The write looks the id up, verifies, appends and syncs under the token: what is answered is on
 *    the (shared) disk, and whoever holds the store next sees it. A write that comes too late all the
 *    same is skipped by its epoch (log.ts).
 * 4. An answer that does not come is no answer: the client asks again with the same id.
 */
import { join } from "node:path";
import {
  AgentError,
  type Client,
  connect,
  type Genuine,
  NotHolderError,
  requireToken,
  type Token,
} from "../../../src/client/mod.ts";
import { append, type Entry, LogError, readLog } from "./log.ts";

/** How long a request waits for its turn here before it is told to try again. */
const WAIT_MS = 1_000;
/** The other front end may be gone. */
const PASS_ON_WITHIN_MS = 3_000;
/** A header of what was passed on already: if the holder changed meanwhile, the client asks again. */
const PASSED_ON = "passed-on";

/** What a front end needs. */
export interface FrontEndOptions {
  /** The agent's socket. */
  readonly socket: string;
  /** Where the stores are: the same, shared, on each host. */
  readonly stores: string;
  readonly port: number;
}

/** What a request asks for; `id` is null where it names none. */
interface Wish {
  readonly store: string;
  readonly id: string | null;
}

/** The client's mistake. */
class BadRequest extends Error {}

/** Serves until the process ends. */
export async function serve({ socket, stores, port }: FrontEndOptions): Promise<void> {
  const agent = await connect({ socket });
  const logOf = (store: string) => join(stores, store, "log");
  Bun.serve({
    hostname: "127.0.0.1",
    port,
    async fetch(request) {
      try {
        const wish = parse(request);
        if (request.method === "GET") return show(logOf(wish.store), wish.id);
        if (request.method !== "POST") return new Response("GET or POST", { status: 405 });
        const entry = await entryOf(request, wish.id);
        const at = await write(agent, { ...wish, path: logOf(wish.store), entry })
          .catch((error) => passOn(request, { ...wish, entry }, error));
        return at instanceof Response ? at : Response.json({ at, by: port });
      } catch (error) {
        return refuse(error);
      }
    },
  });
}

/** A store code, as the agent has it: no way out of the directory of stores. */
const STORE = /^(?!.{129})(?!-)[\w-]+([./][\w-]+)*$/;
/** Without what ends a field or a line of the log. */
const ID = /^[A-Za-z0-9._-]{1,64}$/;

function parse({ url }: Request): Wish {
  const { pathname, searchParams } = new URL(url);
  const store = pathname.slice(1);
  if (!STORE.test(store)) throw new BadRequest(`"${store}" is no store code`);
  const [id = null, ...more] = searchParams.getAll("id");
  if (more.length > 0) throw new BadRequest("more than one id was given");
  if (id !== null && !ID.test(id)) {
    throw new BadRequest(`an id is 1 to 64 of A-Z a-z 0-9 . _ -, not ${JSON.stringify(id)}`);
  }
  return { store, id };
}

async function entryOf(request: Request, id: string | null): Promise<Entry> {
  if (id === null) {
    throw new BadRequest("a write needs an id of yours, ?id=ID, to be told from others");
  }
  try {
    return { id, body: await request.bytes() };
  } catch {
    throw new BadRequest("the body ended early");
  }
}

/** Makes a write here, if the store can be held here. */
function write(
  agent: Client,
  { store, path, entry }: { store: string; path: string; entry: Entry },
): Promise<number> {
  return agent.guard(
    store,
    { waitMs: WAIT_MS, purpose: "push" },
    (token) => commit(token, { store, path, entry }),
  );
}

/** The writing call, which takes the token first. */
async function commit<T extends Token>(
  token: Genuine<T>,
  { store, path, entry }: { store: string; path: string; entry: Entry },
): Promise<number> {
  requireToken(token, store);
  const { epoch } = token;
  if (epoch === null) throw new Error("The log is ordered by epochs: no write without a lease");
  return await append(path, entry, { epoch, verify: () => token.verify() });
}

/** Sends a write to where the store is held, if that was why it failed here. */
async function passOn(
  request: Request,
  { store, entry }: { store: string; entry: Entry },
  error: unknown,
): Promise<Response> {
  if (!(error instanceof NotHolderError) || request.headers.has(PASSED_ON)) throw error;
  const address = error.holder?.address;
  if (!address) throw error;
  try {
    return await fetch(`${address}/${store}?id=${entry.id}`, {
      method: "POST",
      body: entry.body,
      headers: { [PASSED_ON]: "1" },
      signal: AbortSignal.timeout(PASS_ON_WITHIN_MS),
    });
  } catch {
    // Gone, or too slow: whether the write was made is not known, and will be found by its id.
    throw error;
  }
}

function show(path: string, id: string | null): Response {
  const entries = readLog(path);
  if (id === null) return new Response(entries.map((entry) => `${entry.id}\n`).join(""));
  const found = entries.find((entry) => entry.id === id);
  return found === undefined
    ? new Response(`no write ${id}`, { status: 404 })
    : new Response(found.body);
}

/** 503 for what may pass, and is tried again with the same id; 4xx for the client's mistakes. */
function refuse(error: unknown): Response {
  return new Response(error instanceof Error ? error.message : String(error), {
    status: statusOf(error),
  });
}

function statusOf(error: unknown): number {
  if (error instanceof BadRequest) return 400;
  if (error instanceof LogError) return { taken: 409, full: 507, late: 503 }[error.fault];
  if (!(error instanceof AgentError)) return 500;
  if (error.kind === "invalid") return 400;
  if (error.kind === "unknown_store") return 404;
  // Lost, too: here a repeated write is found by its id.
  return error.retryable || error.kind === "lost" ? 503 : 500;
}

if (import.meta.main) {
  const [socket, stores, port] = process.argv.slice(2);
  await serve({ socket, stores, port: Number(port) });
  console.log("ready");
}
