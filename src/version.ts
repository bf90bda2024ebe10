/**
 * The version, as in package.json.
 * @module
 */
import manifest from "../package.json" with { type: "json" };

/** The agent's version. */
export const VERSION: string = manifest.version;
