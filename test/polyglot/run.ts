/**
 * Has a client replay the exchanges: starts the agents of the scenes, and runs a command with two kinds
 * of further arguments, the file of variables and the exchanges.
 *
 *   bun test/polyglot/run.ts python3 test/polyglot/python/replay.py
 *
 * @module
 */
import { tempDir } from "../support/temp_dir.ts";
import { exchanges, Scenes } from "./scenes.ts";

if (import.meta.main) {
  using directory = tempDir();
  await using scenes = await Scenes.start();
  const variables = await scenes.variablesIn(directory.path);
  const files = exchanges().map(({ file }) => file);
  const child = Bun.spawn([...process.argv.slice(2), variables, ...files], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  process.exitCode = await child.exited;
}
