/**
 * Telling systemd: ready, status, stopping, alive (sd_notify(3)).
 * @module
 */
import { sendDatagram } from "../sys/unix_socket.ts";

/** How often a message that must arrive is tried again while systemd's socket is full. */
const RETRY_MS = 50;
const MAX_TRIES = 100;

/** systemd's ear; deaf where nobody listens. */
export interface Notifier {
  /** How often at least the watchdog wants to be fed, in milliseconds; null: there is none. */
  readonly watchdogMs: number | null;
  ready(): void;
  status(text: string): void;
  stopping(): void;
  watchdog(): void;
  /** Gives up what could not be told yet. */
  close(): void;
}

/** Opens the way to the service manager that `env` names; takes its variables out of `env`. */
export function openNotifier(
  env: Record<string, string | undefined>,
  send: (address: string, bytes: Uint8Array) => boolean = sendDatagram,
): Notifier {
  const { NOTIFY_SOCKET: address, WATCHDOG_USEC, WATCHDOG_PID } = env;
  // Not for children of ours.
  for (const name of ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]) delete env[name];
  const ours = WATCHDOG_PID === undefined || Number(WATCHDOG_PID) === process.pid;
  const watchdogMs = address && ours && Number(WATCHDOG_USEC) > 0
    ? Number(WATCHDOG_USEC) / 1_000
    : null;
  return new SystemdNotifier(address, watchdogMs, send);
}

class SystemdNotifier implements Notifier {
  readonly watchdogMs: number | null;
  readonly #address: string | undefined;
  readonly #send: (address: string, bytes: Uint8Array) => boolean;
  #retries = new Set<ReturnType<typeof setTimeout>>();

  constructor(
    address: string | undefined,
    watchdogMs: number | null,
    send: (address: string, bytes: Uint8Array) => boolean,
  ) {
    this.#address = address;
    this.watchdogMs = watchdogMs;
    this.#send = send;
  }

  ready(): void {
    this.#insist("READY=1");
  }

  stopping(): void {
    this.#insist("STOPPING=1");
  }

  status(text: string): void {
    // A line break would start another assignment.
    this.#tell(`STATUS=${text.replace(/\s+/g, " ")}`);
  }

  watchdog(): void {
    this.#tell("WATCHDOG=1");
  }

  close(): void {
    for (const timer of this.#retries) clearTimeout(timer);
  }

  /** False if it should be tried again. */
  #tell(message: string): boolean {
    if (this.#address === undefined || this.#address === "") return true;
    try {
      return this.#send(this.#address, new TextEncoder().encode(message));
    } catch {
      return true; // nobody listens there, and nothing can be done about it
    }
  }

  #insist(message: string, triesLeft = MAX_TRIES): void {
    if (this.#tell(message) || triesLeft === 0) return;
    const timer = setTimeout(() => {
      this.#retries.delete(timer);
      this.#insist(message, triesLeft - 1);
    }, RETRY_MS);
    this.#retries.add(timer);
  }
}
