/**
 * Telling systemd: ready, status, stopping, alive (sd_notify(3)).
 * @module
 */
import { sendDatagram } from "../sys/unix_socket.ts";
import { visible } from "../sys/visible.ts";

/** How often a message that must arrive is tried again while systemd's socket is full. */
const RETRY_MS = 50;
/** For five seconds: a busy boot is over by then, or nobody reads at all. */
const MAX_TRIES = 100;

/** systemd's ear; deaf where nobody listens. */
export interface Notifier {
  /** How long systemd waits for a sign of life, in milliseconds; null: it does not. */
  readonly watchdogMs: number | null;
  /** Started, or done with reloading. */
  ready(status: string): void;
  /** Reading the configuration again; {@linkcode ready} ends it. */
  reloading(): void;
  /** One line for `systemctl status`. */
  status(text: string): void;
  stopping(status: string): void;
  /** The start or the end takes longer: wait at least `ms` more from now on. */
  extendTimeout(ms: number): void;
  /** A sign of life. */
  watchdog(): void;
  /** Gives up what could not be told yet. */
  close(): void;
}

/** What {@linkcode openNotifier} takes from its surroundings, besides the environment. */
export interface NotifierOptions {
  /** Sends one datagram; false where the receiver's queue is full. */
  readonly send?: (address: string, bytes: Uint8Array) => boolean;
  /** Told once if nobody hears. */
  readonly onError?: (error: Error) => void;
}

/** Opens the way to the service manager that `env` names; takes its variables out of `env`. */
export function openNotifier(
  env: Record<string, string | undefined>,
  { send = sendDatagram, onError = () => {} }: NotifierOptions = {},
): Notifier {
  const { NOTIFY_SOCKET: address, WATCHDOG_USEC, WATCHDOG_PID } = env;
  // Not for children of ours.
  for (const name of ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]) delete env[name];
  const ours = !WATCHDOG_PID || WATCHDOG_PID === String(process.pid);
  const usec = /^\d+$/.test(WATCHDOG_USEC ?? "") ? Number(WATCHDOG_USEC) : 0;
  const watchdogMs = address && ours && usec > 0 ? usec / 1_000 : null;
  return new SystemdNotifier(address || null, { watchdogMs, send, onError });
}

class SystemdNotifier implements Notifier {
  readonly watchdogMs: number | null;
  #address: string | null;
  readonly #send: (address: string, bytes: Uint8Array) => boolean;
  readonly #onError: (error: Error) => void;
  /** What must arrive, in order: STOPPING may not overtake READY. */
  readonly #queue: string[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;
  #tries = 0;

  constructor(
    address: string | null,
    options: Required<NotifierOptions> & { watchdogMs: number | null },
  ) {
    this.#address = address;
    this.watchdogMs = options.watchdogMs;
    this.#send = options.send;
    this.#onError = options.onError;
  }

  ready(status: string): void {
    this.#insist(`READY=1\nSTATUS=${oneLine(status)}`);
  }

  reloading(): void {
    // The time lets systemd tell this reload from an earlier one (Type=notify-reload).
    const us = process.hrtime.bigint() / 1_000n;
    this.#insist(`RELOADING=1\nMONOTONIC_USEC=${us}`);
  }

  status(text: string): void {
    this.#tell(`STATUS=${oneLine(text)}`);
  }

  stopping(status: string): void {
    this.#insist(`STOPPING=1\nSTATUS=${oneLine(status)}`);
  }

  extendTimeout(ms: number): void {
    this.#tell(`EXTEND_TIMEOUT_USEC=${Math.round(ms * 1_000)}`);
  }

  watchdog(): void {
    this.#tell("WATCHDOG=1");
  }

  close(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#queue.length = 0;
  }

  /** False if it should be tried again. */
  #tell(message: string): boolean {
    if (this.#address === null) return true;
    try {
      return this.#send(this.#address, new TextEncoder().encode(message));
    } catch (error) {
      this.#fail(error as Error);
      return true;
    }
  }

  #insist(message: string): void {
    this.#queue.push(message);
    if (this.#timer === null) this.#flush();
  }

  #flush(): void {
    this.#timer = null;
    while (this.#queue.length > 0) {
      if (!this.#tell(this.#queue[0])) return this.#retryLater();
      this.#queue.shift();
      this.#tries = 0;
    }
  }

  #retryLater(): void {
    if (++this.#tries > MAX_TRIES) return this.#fail(new Error("it does not read"));
    this.#timer = setTimeout(() => this.#flush(), RETRY_MS);
  }

  /** Nobody hears, which the service manager will answer in its own way. */
  #fail(cause: Error): void {
    this.#address = null;
    this.#queue.length = 0;
    this.#onError(
      new Error(
        `Cannot notify the service manager: ${cause.message}; it will think that the agent hangs, ` +
          "so restart it",
      ),
    );
  }
}

/** Each line would be another assignment. */
function oneLine(text: string): string {
  return visible(text.replace(/\s+/g, " "));
}
