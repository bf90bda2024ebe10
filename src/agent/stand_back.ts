/**
 * Work that nobody's lease depends on stands back while renewals are late.
 * @module
 */

/** How late renewals may be before other work stands back. */
export const LATE_MS = 50;

/** For how long it then does. */
const STAND_BACK_MS = 20;

/** Soon, but after whatever else the event loop has to do. */
const AGAIN_MS = 1;

/** When the next slice of other work may be done, renewals being so late. */
export function pauseMs(lateMs: number): number {
  return lateMs > LATE_MS ? STAND_BACK_MS : AGAIN_MS;
}
