/**
 * Waiting in tests: for a condition, never for a length of time.
 * @module
 */

type Truthy<T> = Exclude<T, false | null | undefined | 0 | "">;

/** Resolves when `holds` returns something truthy, which it also returns; throws after `withinMs`. */
export async function until<T>(
  what: string,
  holds: () => T | Promise<T>,
  withinMs = 20_000,
): Promise<Truthy<T>> {
  const end = performance.now() + withinMs;
  while (true) {
    const value = await holds();
    if (value) return value as Truthy<T>;
    if (performance.now() > end) throw new Error(`Waited ${withinMs} ms in vain until ${what}`);
    await Bun.sleep(5);
  }
}
