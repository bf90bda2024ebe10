/**
 * Tells the service manager how the agent is: sd_notify(3).
 * @module
 */

/** Sends one datagram; false where the receiver's queue is full. Throws where nobody receives. */
export type SendDatagram = (address: string, bytes: Uint8Array) => boolean;

/** What {@linkcode Notifier} is made of. */
export interface NotifierOptions {
  /** `NOTIFY_SOCKET`: an absolute path, or `@` and an abstract name; undefined without a manager. */
  readonly address: string | undefined;
  readonly send: SendDatagram;
  /** Told once why notifying does not work; the agent goes on. */
  readonly onError?: (error: Error) => void;
}

/** How soon to try again when the manager's queue is full, in ms. */
const RETRY_MS = 20;
/**
 * How often: for two seconds. Not longer, because what is told is worth less then; less would lose
 * READY to a busy boot, after which the manager ends the service.
 */
const MAX_TRIES = 100;

/** The service manager, if there is one. */
export class Notifier {
  readonly #options: NotifierOptions;
  #failed = false;

  constructor(options: NotifierOptions) {
    this.#options = options;
  }

  /** Whether somebody listens. */
  get isActive(): boolean {
    return Boolean(this.#options.address) && !this.#failed;
  }

  /** The agent serves. Resolves when the manager was told, or cannot be. */
  ready(status: string): Promise<void> {
    return this.#mustArrive(`READY=1\nSTATUS=${oneLine(status)}`);
  }

  /** The agent is about to end. Resolves when the manager was told, or cannot be. */
  stopping(status: string): Promise<void> {
    return this.#mustArrive(`STOPPING=1\nSTATUS=${oneLine(status)}`);
  }

  /** One line for people; dropped when the manager is busy, because the next one replaces it. */
  status(text: string): void {
    this.#send(`STATUS=${oneLine(text)}`);
  }

  /** The agent makes progress. Dropped when the manager is busy: there are several in its patience. */
  watchdog(): void {
    this.#send("WATCHDOG=1");
  }

  /** The manager should wait longer for READY or the end: at least `ms` from now. */
  extendTimeout(ms: number): void {
    this.#send(`EXTEND_TIMEOUT_USEC=${Math.round(ms * 1_000)}`);
  }

  async #mustArrive(text: string): Promise<void> {
    for (let tries = 0; !this.#send(text); tries++) {
      if (tries === MAX_TRIES) return this.#fail(new Error("the service manager does not read"));
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  /** Returns whether there is nothing more to do about it. */
  #send(text: string): boolean {
    const { address, send } = this.#options;
    if (!address || this.#failed) return true;
    try {
      return send(address, new TextEncoder().encode(text));
    } catch (error) {
      this.#fail(error as Error);
      return true;
    }
  }

  #fail(cause: Error): void {
    if (this.#failed) return;
    this.#failed = true;
    const message = `Cannot notify the service manager: ${cause.message}`;
    this.#options.onError?.(new Error(message, { cause }));
  }
}

/**
 * How often to call {@linkcode Notifier.watchdog}, in ms: a third of the manager's patience. Null
 * where it has none, or has it with another process (`WATCHDOG_PID`).
 */
export function watchdogIntervalMs(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): number | null {
  const patienceUs = Number(env.WATCHDOG_USEC);
  if (!Number.isSafeInteger(patienceUs) || patienceUs <= 0) return null;
  if (env.WATCHDOG_PID && Number(env.WATCHDOG_PID) !== pid) return null;
  return patienceUs / 3 / 1_000;
}

/** Each line would be another assignment. */
function oneLine(text: string): string {
  return text.replace(/\s+/g, " ");
}
