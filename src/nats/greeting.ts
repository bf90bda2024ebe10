/**
 * What a nats-server says of itself to whoever connects, before it asks who that is.
 * @module
 */
import { connect } from "node:net";
import type { ServerInfo } from "@nats-io/transport-node";

/** How long a greeting is awaited, in milliseconds: a server sends it by itself, at once. */
const GREETING_TIMEOUT_MS = 1_000;

/** A greeting with the addresses of a large cluster is a few thousand bytes. */
const MAX_GREETING_BYTES = 64 * 1024;

/** Where a server is. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** The greeting of the server at an address; null where none comes. Never rejects. */
export function greet({ host, port }: Address): Promise<ServerInfo | null> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    let text = "";
    const end = (info: ServerInfo | null) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(info);
    };
    const timer = setTimeout(() => end(null), GREETING_TIMEOUT_MS);
    socket.setEncoding("utf8");
    socket.on("error", () => end(null));
    socket.on("close", () => end(null));
    socket.on("data", (chunk) => {
      text += chunk;
      if (text.includes("\r\n") || text.length > MAX_GREETING_BYTES) end(parseGreeting(text));
    });
  });
}

function parseGreeting(text: string): ServerInfo | null {
  const match = /^INFO (\{.*\})\s*\r\n/.exec(text);
  try {
    const info = JSON.parse(match?.[1] ?? "null") as ServerInfo | null;
    return typeof info?.server_id === "string" ? info : null;
  } catch {
    return null;
  }
}
