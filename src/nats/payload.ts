/**
 * Whether a server takes messages as long as an agent's.
 * @module
 */
import type { ServerInfo } from "@nats-io/transport-node";
import type { Finding } from "./setup_error.ts";

/**
 * The longest that an agent sends: a record with a long address and a long name, or what is asked of
 * JetStream when a bucket is made. Each is below 2,500 bytes. NATS' default is 1 MiB.
 */
const NEEDED_BYTES = 4_096;

/** Why a server cannot be used that greets so; null where it can. It ends connections for longer ones. */
export function checkPayload(info: ServerInfo | undefined, server: string): Finding | null {
  const bytes = info?.max_payload ?? NEEDED_BYTES;
  if (bytes >= NEEDED_BYTES) return null;
  return {
    check: "max_payload",
    message:
      `${server} takes no message above ${bytes} bytes (max_payload), which an agent's may be: ` +
      `raise max_payload in its configuration to ${NEEDED_BYTES} at least (1MB by default), and reload it`,
  };
}
