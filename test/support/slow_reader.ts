/** A client in this process that watches stores. */
import type { Client, LeaseInfo } from "../../src/agent/types.ts";

/** A connection that notes what it is told, and can be slow to read it. */
export class Reader implements Client {
  readonly id = 1;
  readonly pid = 1;
  readonly told: string[] = [];
  congested = false;
  #waiting: (() => void)[] = [];

  onDrain(callback: () => void): void {
    this.#waiting.push(callback);
  }

  drain(): void {
    this.congested = false;
    while (this.#waiting.length > 0) this.#waiting.shift()!();
  }

  changed(_subscription: string, { store, held }: LeaseInfo): void {
    this.told.push(`${store} ${held}`);
  }

  lost(): void {}
  deadline(): void {}
}
