/**
 * Writes into DIRECTORY what a nats-server with accounts needs, and credentials for its clients:
 * nats.conf, agent.creds (may use it), stranger.creds (of another operator).
 *
 * Usage: nats_config.ts DIRECTORY
 * @module
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Operator } from "../../support/operator.ts";

const [directory] = process.argv.slice(2);
const operator = new Operator();
writeFileSync(
  join(directory, "nats.conf"),
  `listen: "127.0.0.1:4222"\njetstream { store_dir: "/var/lib/nats" }\n${operator.config()}\n`,
);
writeFileSync(join(directory, "agent.creds"), operator.creds());
writeFileSync(join(directory, "stranger.creds"), new Operator().creds());
