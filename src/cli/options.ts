/**
 * Options that several commands have.
 * @module
 */
import { InvalidArgumentError, Option } from "commander";
import type { Command } from "commander";
import { parseDurationMs } from "./duration.ts";

/** An option whose value is a duration; commands get milliseconds. */
export function durationOption(flags: string, description: string): Option {
  return new Option(flags, description).argParser((text: string) => {
    try {
      return parseDurationMs(text);
    } catch (error) {
      throw new InvalidArgumentError(`${(error as Error).message}.`);
    }
  });
}

/** The options of every command that asks the agent something and prints the answer. */
export interface ClientOptions {
  socket?: string;
  json?: boolean;
}

/** Adds {@linkcode ClientOptions} to a command. */
export function clientOptions(command: Command): Command {
  return command
    .option("--json", "the result as JSON")
    .option("--socket <PATH>", "the agent's socket (else ZIT_AGENT_SOCKET, else the default)");
}

/** They may stand before the command's name as well: `agent --json status`. */
export function clientOptionsOf(command: Command): ClientOptions {
  const own = command.opts<ClientOptions>();
  const outer = command.parent?.opts<ClientOptions>() ?? {};
  return { socket: own.socket ?? outer.socket, json: own.json ?? outer.json ?? false };
}
