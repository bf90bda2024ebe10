/**
 * A tiny forge's front end, one on each host: takes writes by HTTP, makes them where the store is
 * held, and never loses or doubles one.
 *
 *   POST /STORE?id=ID   appends the body to the store's log, once for each ID; answers where it stands
 *   GET /STORE          the log
 *
 * Four rules, each of a few lines, make it so:
 *
 * 1. Whoever is asked tries the local guard first. Not the holder: pass the write on to the address
 *    that the refusal names, at most once more (`hops`), since routes can be behind the truth.
 * 2. What may pass is tried again, by the client, too: every write has an id of its client's choosing,
 *    and the log says which ids it has. A repeated write is answered, not made again.
 * 3. The write looks the id up, verifies, appends and syncs under the token: what is answered is on
 *    the (shared) disk, and whoever holds the store next sees it.
 * 4. An answer that does not come is no answer: the client asks again with the same id.
 */
import { existsSync, readFileSync } from "node:fs";
import { open } from "node:fs/promises";
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

/** How long a request waits for its turn here before it is told to try again. */
const WAIT_MS = 1_000;
/** A write is passed on once: if the holder changed meanwhile, the client asks again. */
const MAX_HOPS = 1;
/** The other front end may be gone. */
const PASS_ON_WITHIN_MS = 3_000;

/** What a front end needs. */
export interface FrontEndOptions {
  /** The agent's socket. */
  readonly socket: string;
  /** Where the stores are: the same, shared, on each host. */
  readonly stores: string;
  readonly port: number;
}

/** Appends `line` under `id`, unless it is there; returns its number. */
async function append<T extends Token>(
  token: Genuine<T>,
  path: string,
  write: { readonly store: string; readonly id: string; readonly line: string },
): Promise<number> {
  requireToken(token, write.store);
  const lines = read(path);
  const found = lines.findIndex((line) => line.startsWith(`${write.id} `));
  if (found >= 0) return found;
  const file = await open(path, existsSync(path) ? "r+" : "w");
  try {
    await token.verify();
    // At the end of the whole lines: what is behind them was never answered, and must not become a
    // part of this one.
    const end = Buffer.byteLength(lines.map((line) => `${line}\n`).join(""));
    await file.truncate(end);
    await file.write(`${write.id} ${write.line}\n`, end);
    await file.sync();
  } finally {
    await file.close();
  }
  return lines.length;
}

/** The whole lines: a last one without its end is what a host left that failed while it wrote. */
function read(path: string): string[] {
  return existsSync(path) ? readFileSync(path, "utf8").split("\n").slice(0, -1) : [];
}

/** Serves until the process ends. */
export async function serve({ socket, stores, port }: FrontEndOptions): Promise<void> {
  const agent = await connect({ socket });
  Bun.serve({
    hostname: "127.0.0.1",
    port,
    async fetch(request) {
      const url = new URL(request.url);
      const store = url.pathname.slice(1);
      const path = join(stores, store, "log");
      if (request.method === "GET") return new Response(read(path).join("\n"));
      const write = { store, id: url.searchParams.get("id")!, line: await request.text() };
      try {
        return Response.json({ at: await writeHere(agent, path, write), by: port });
      } catch (error) {
        if (error instanceof NotHolderError) return await passOn(request, write, error);
        return refuse(error);
      }
    },
  });
}

function writeHere(
  agent: Client,
  path: string,
  write: { store: string; id: string; line: string },
): Promise<number> {
  const options = { waitMs: WAIT_MS, purpose: "push" };
  return agent.guard(write.store, options, (token) => append(token, path, write));
}

/** Sends a write to where the store is held. */
async function passOn(
  request: Request,
  { store, id, line }: { store: string; id: string; line: string },
  error: NotHolderError,
): Promise<Response> {
  const hops = Number(request.headers.get("hops") ?? 0);
  const address = error.holder?.address;
  if (!address || hops >= MAX_HOPS) return refuse(error);
  try {
    return await fetch(`${address}/${store}?id=${encodeURIComponent(id)}`, {
      method: "POST",
      body: line,
      headers: { hops: String(hops + 1) },
      signal: AbortSignal.timeout(PASS_ON_WITHIN_MS),
    });
  } catch {
    // Gone, or too slow: whether the write was made is not known, and will be found by its id.
    return refuse(error);
  }
}

/** 503 for what may pass. Lost, too: here a repeated write is found by its id. */
function refuse(error: unknown): Response {
  if (!(error instanceof AgentError)) return new Response(String(error), { status: 500 });
  const again = error.retryable || error.kind === "lost";
  return new Response(error.message, { status: again ? 503 : 500 });
}

if (import.meta.main) {
  const [socket, stores, port] = process.argv.slice(2);
  await serve({ socket, stores, port: Number(port) });
  console.log("ready");
}
