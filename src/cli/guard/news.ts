/**
 * What was told to a process while it stood still.
 * @module
 */
import { afterReading } from "../../client/sending.ts";

/** What waits to be read is read within a turn of the event loop; a machine that is busy takes longer. */
const READ_NEWS_MS = 10;

/**
 * Resolves when whatever was sent to us by now has been read. A process does not notice that it was
 * stopped: so before it does something for want of news, it looks whether there are any.
 */
export async function newsRead(): Promise<void> {
  await Bun.sleep(READ_NEWS_MS);
  // Stopped once more meanwhile, the time alone would not tell that anything was read.
  await new Promise<void>(afterReading);
}
