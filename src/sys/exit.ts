/**
 * The exit statuses of sysexits.h that errors carry.
 * @module
 */

/** EX_USAGE: what was given cannot be meant. */
export const EXIT_USAGE = 64;

/** EX_CANTCREAT: a socket, directory or page cannot be made, or is used by another. */
export const EXIT_CANNOT_CREATE = 73;

/** EX_CONFIG: the setup contradicts itself. */
export const EXIT_CONFIG = 78;
